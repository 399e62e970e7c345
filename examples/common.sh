# SPDX-License-Identifier: Apache-2.0
# Sourced by each example's run.sh [FOLDER [COEUS]]. Finds the program ($coeus) and the command that starts ranks
# ($start), and enters the working folder, which it makes. $here is the example's own folder.
# COEUS: default: build/coeus of this source tree, else the coeus in the PATH.
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
if [ -n "${2-}" ]; then
    coeus=$(readlink -f "$2")
elif [ -x "$root/build/coeus" ]; then
    coeus=$root/build/coeus
else
    coeus=$(command -v coeus) || { echo "there is no coeus: call make, or give the program as second argument" >&2; exit 2; }
fi
# the mpirun of the MPI that the program was built with
start=$("$root/tools/mpirun_command.sh" "$(dirname "$coeus")") || exit 2
# root may run Open MPI; ranks may share a core, and then wait without spinning
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1
folder=${1:-$(basename "$here")}
mkdir -p "$folder"
cd "$folder"

say() { printf '\n== %s\n' "$*"; }

# with_log FILE COMMAND...: its output goes to FILE, and is shown if the command fails
with_log() {
    log=$1
    shift
    "$@" >"$log" 2>&1 || { code=$?; cat "$log" >&2; exit "$code"; }
}

# progress FILE: of a training's output, the lines that show where it starts and how the loss falls
progress() {
    sed -n -E '/Mesh:|Resuming|Starting from|from scratch|step:|Saved|completed/{s/.* - (info|warning) - //; s/ +memory:.*//; p}' "$1"
}
