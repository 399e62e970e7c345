#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs every check of the sources (except that headers compile alone, which is a test). Each check prints one line per
# finding, then its summary. Ends with exit code 1 if any failed.
set -u
cd "$(dirname "$0")/.."

failed=
check() {
    name=$1
    shift
    start=$(date +%s)
    code=0
    "$@" || code=$?
    case $code in
        0) verdict=ok ;;
        77) verdict=skipped ;;
        *) verdict=FAILED failed="$failed $name" ;;
    esac
    printf 'lint: %-12s %-7s %4d s\n' "$name" "$verdict" $(($(date +%s) - start))
}

# newer versions format some 80 places differently
format() {
    if ! command -v clang-format-14 >/dev/null; then
        echo "skipped: the sources are formatted with clang-format 14, which is not installed"
        return 77
    fi
    find include src tests bench \( -name '*.?pp' -o -name '*.cu' -o -name '*.h' \) -print0 |
        xargs -0 -P "$(nproc)" -n 16 clang-format-14 --dry-run --Werror 2>&1 |
        sed -n 's/^\([^:]*:[0-9]*\):[0-9]*: error: code should be clang-formatted.*/\1: not formatted as in .clang-format (run make format)/p' |
        sort -u -t: -k1,1 | { ! grep .; }
}

check files tools/check_files.py
check includes tools/check_includes.py
check uses tools/check_uses.py
check prose tools/check_prose.py
check documents tools/check_documents.py
check pictures tools/pictures.py --check
check budget tools/budget.py check
check reach tools/reach.py check
check format format
CLANG_TIDY=$(tools/clang.sh clang-tidy) && export CLANG_TIDY
check clang-tidy tools/tidy.py build src
if [ -n "$failed" ]; then
    echo "lint: failed:$failed" >&2
    exit 1
fi
echo "lint: no findings in the checks that ran"
