#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The first hour on a new machine with GPUs: first_hour.sh [FOLDER [PART ...]]. FOLDER is a build folder (default
# build-cuda) or an unpacked bundle, in which this script is called first-hour.sh. Each PART is a name of the last
# lines of this script, or a number of a setting, such as B6; without one, all parts run. If the first one is `short`,
# they are facts, start, kernels and settings, and those that follow: for a command of ten minutes, which leaves only
# OUT/report.md and OUT/first_hour.tar.zst. The script tests, measures and compares on all GPUs of this host, or of
# all nodes of a Slurm job (sbatch --wrap). No failure stops it, and each part has a time limit. It writes
# OUT/first_hour/report.md (OUT: default FOLDER; for several nodes a folder that all of them see) with a log for each
# run beside it, and packs both into OUT/first_hour.tar.zst (or .gz), which can be sent back.
#
#   RANKS               number of ranks that train together; default: one for each GPU
#   LAUNCH              the command that starts them, to which `-n RANKS` is added; default: srun in a job of Slurm,
#                       otherwise mpirun
#   COEUS_HOUR_SECONDS  total time, default 3300 (short: 540); parts for which no time is left are skipped, and the
#                       report says so
#   COEUS_RUN_SECONDS   time limit of one training run, default 240 (short: 60, and 120 for the first run)
#   COEUS_GPU_BENCH     tiny: a tiny model and small cases, for a test of this script
# shellcheck disable=SC2317 # parts are called by name
set -u
export LC_ALL=C
here=$(CDPATH='' cd "$(dirname "$0")" && pwd)
own=build-cuda tests=$here/run.sh
[ ! -x "$here/run" ] || own=$here tests=$here/gpu-tests.sh
given=${1:-$own}
folder=$(CDPATH='' cd "$given" && pwd) || exit 2
[ $# = 0 ] || shift
arguments=$* wanted=${*:-all}
short="" seconds=3300 of_a_run=240 of_the_first=240 of_kernels=420
if [ "${1-}" = short ]; then
    shift
    short=yes seconds=540 of_a_run=60 of_the_first=120 of_kernels=200
    wanted="facts start kernels settings $*"
fi
mkdir -p "${OUT:-$folder}" || exit 2
out=$(CDPATH='' cd "${OUT:-$folder}" && pwd)/first_hour
logs=$out/logs work=$out/work
coeus=$folder/coeus bench=$here/../../bench/gpu.sh
tiny=
[ "${COEUS_GPU_BENCH-}" != tiny ] || tiny=yes

begin=$(date +%s)
end=$((begin + ${COEUS_HOUR_SECONDS:-$seconds}))
deadline=$end part=start-up running= under=
run_seconds=${COEUS_RUN_SECONDS:-$of_the_first}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_mpi_yield_when_idle=1

# --- what the report is made of: files in $work

on_one_line() { tr '\n|' ' /' | sed 's/  */ /g; s/^ //; s/ $//'; }
fact() { printf '| %s | %s |\n' "$1" "$(printf '%s' "${2:-not known}" | on_one_line)" >>"$work/facts"; } # fact NAME VALUE
verdict() { printf -- '- %s\n' "$*" >>"$work/verdicts" && echo "   $*"; }
failed() { # failed WHAT WHY [LOG]
    case $2 in *"no time was left"*) skipped "$1" "no time was left" && return ;; esac
    where=
    [ ! -f "$logs/${3-}.log" ] || where=" (logs/$3.log)"
    printf -- '- **%s**: %s%s\n' "$1" "$(printf '%s' "$2" | on_one_line)" "$where" >>"$work/failed"
    echo "   $1 FAILED: $2"
}
skipped() { # skipped WHAT WHY
    printf -- '- %s: %s\n' "$1" "$2" >>"$work/skipped"
    echo "   $1 skipped: $2"
}
page() { # page TITLE: adds standard input as a page
    { printf '\n## %s\n\n```\n' "$1" && cat && printf '```\n'; } >>"$work/pages"
}

# --- running commands

is_wanted() { case " $wanted " in *" $1 "* | " all ") ;; *) return 1 ;; esac }

now() { date +%s; }

# the line of a log that tells why a command failed
error_of() { { grep -i -m 1 'error' "$1" || grep -v '^ *$' "$1" | tail -n 1; } 2>/dev/null | cut -c 1-300; }

attempt() { # attempt LOG SECONDS COMMAND ...: returns its exit code, and sets `why` to the reason if it is not 0
    log=$logs/$1.log limit=$2 why=
    shift 2
    left=$((deadline - $(now)))
    [ "$limit" -le "$left" ] || limit=$left
    [ "$limit" -gt 0 ] || { why="no time was left" && return 1; }
    command -v "$1" >/dev/null || { why="there is no $1" && return 127; }
    since=$(now)
    timeout -k 5 "$limit" "$@" >"$log" 2>&1 </dev/null &
    running=$!
    wait $running
    code=$?
    running=
    sed -i "s/$(printf '\033')\\[[0-9;]*m//g" "$log"
    [ $code != 0 ] || return 0
    why="exit code $code: $(error_of "$log")"
    [ $code -lt 124 ] || [ $(($(now) - since)) -lt "$limit" ] || why="took longer than $limit s"
    return $code
}

bench_program() { # bench_program LOG SECONDS PROGRAM ...: a program of bench/gpu
    name=$1 limit=$2 program=$3
    shift 3
    if [ -x "$folder/run" ]; then set -- "$folder/run" "$program" "$@"; else set -- "$folder/bench/$program" "$@"; fi
    attempt "$name" "$limit" "$@"
}

train() { # train NAME RANKS [VARIABLE=VALUE ...] [--OPTION=VALUE ...]: trains in $work/NAME, metrics in logs/NAME.jsonl
    name=$1 count=$2 variables= options=
    shift 2
    for word in "$@"; do
        case $word in --*) options="$options $word" ;; *) variables="$variables $word" ;; esac
    done
    [ -x "$coeus" ] || { why="there is no $coeus" && return 127; }
    [ -f "$work/deck.toml" ] || { why="no model could be trained, see above" && return 1; }
    rm -rf "${work:?}/$name"
    # shellcheck disable=SC2086 # words
    set -- env $variables $under "$coeus" train "$work/deck.toml" --device=cuda "--job.dump_folder=$work/$name" \
        --training.global_batch_size=$((2 * count)) $options
    # shellcheck disable=SC2086 # words
    [ "$count" = 1 ] || set -- $launch -n "$count" "$@"
    attempt "$name" "$run_seconds" "$@"
    code=$?
    cp "$work/$name/metrics.jsonl" "$logs/$name.jsonl" 2>/dev/null
    # what each rank was doing, if a run hung
    [ $code = 0 ] || cp -r "$work/$name/comm_traces" "$logs/$name.traces" 2>/dev/null
    if [ $code = 0 ] && [ "$count" != 1 ] && ! grep -q "Mesh: $count ranks" "$logs/$name.log"; then
        code=1 why="the ranks did not find each other: $launch does not fit the program's MPI (set LAUNCH)"
    fi
    return $code
}

warnings_of() { sed -n 's/.* - warning - //p' "$logs/$1.log" | sort -u | cut -c 1-300; } # warnings_of RUN

forget() { rm -rf "${work:?}/$1"; } # forget NAME: deletes the folder of a run

# median FIELD FILE: of the steps after the warm-up
median() {
    sed -n "s/^{\"step\":\\([0-9]*\\),.*\"$1\":\\([0-9.e+-]*\\)[,}].*/\\1 \\2/p" "$2" 2>/dev/null |
        awk -v warm="$warm_up" '$1 > warm { print $2 }' | sort -g |
        awk '{ v[NR] = $1 } END { if (NR) print v[int((NR + 1) / 2)] }'
}

whole() { awk -v v="$1" 'BEGIN { printf "%.0f", v }'; }

# --- the machine

nodes=${SLURM_JOB_NUM_NODES:-1}
gpus=$(nvidia-smi --list-gpus 2>/dev/null | wc -l)
[ -z "${CUDA_VISIBLE_DEVICES-}" ] || gpus=$(echo "$CUDA_VISIBLE_DEVICES" | tr ',' '\n' | grep -c .)
[ "$gpus" -gt 0 ] || gpus=1
ranks=${RANKS:-$((nodes * gpus))}
case $ranks in *[!0-9]* | 0*) echo "RANKS = $ranks: it must be a number of ranks, from 1 on" >&2 && exit 2 ;; esac
built=$("$coeus" info --build 2>/dev/null)
find_launcher() { # prints the command that starts ranks
    if [ -n "${LAUNCH-}" ]; then echo "$LAUNCH" && return; fi
    if [ -n "${SLURM_JOB_ID-}" ] && command -v srun >/dev/null; then
        kind=pmix
        case $built in *"MPI "*MPICH*) kind=pmi2 ;; esac
        case $(srun --mpi=list 2>&1) in
            *$kind*)
                set -- "$(((ranks + nodes - 1) / nodes))"
                echo "srun --mpi=$kind --kill-on-bad-exit=1 --distribution=block:block --nodes=$nodes --ntasks-per-node=$1" && return ;;
        esac
    fi
    if [ -f "$folder/CMakeCache.txt" ]; then
        "$here/../../tools/mpirun_command.sh" "$folder"
    else
        echo "mpirun --oversubscribe --bind-to none" # a bundle contains Open MPI
    fi
}
[ ! -x "$folder/run" ] || PATH=$folder:$PATH bench=$folder/bench/gpu.sh
launch=$(find_launcher)
# srun does not inherit this option from sbatch
cores=$((${SLURM_CPUS_ON_NODE:-$(nproc)} * nodes / ranks))
export SRUN_CPUS_PER_TASK="${SLURM_CPUS_PER_TASK:-$((cores > 0 ? cores : 1))}"

# --- parts

say() { # say COMMAND ...: a fact of this host
    echo "## $*"
    if command -v "$1" >/dev/null; then timeout 20 "$@" 2>&1 </dev/null; else echo "there is no $1"; fi
    echo
}

all_facts() {
    say date -u
    say uname -a
    say cat /etc/os-release
    say nvidia-smi
    say nvidia-smi topo -m
    say nvidia-smi nvlink --status
    say nvidia-smi -q
    say cat /proc/driver/nvidia/version
    say nvcc --version
    say sh -c "ldconfig -p | grep -E 'libcuda\\.|libnccl|libcudnn|libcublasLt|libnvrtc'"
    say "$coeus" --version
    say "$coeus" info --build
    say sh -c 'ulimit -a'
    say taskset -cp $$
    say numactl --hardware
    say lscpu
    say free -g
    say df -h "$out"
    say ip -br link
    say sh -c 'ls -l /sys/class/infiniband; lsmod | grep -E "nvidia|gdrdrv|ib_core|mlx5"'
    say ibstat
    say ibv_devinfo
    say mpirun --version
    say srun --version
    say sh -c 'env | grep -E "^(NCCL|CUDA|SLURM|OMPI|UCX|OMP)_?" | sort'
    say python3 -c 'import torch; print("PyTorch", torch.__version__, torch.version.cuda)'
}

first_line() { "$@" 2>/dev/null | head -n 1; }

part_facts() {
    all_facts >"$logs/facts.log" 2>&1
    fact host "$(uname -n), $nodes node(s), $gpus GPU(s) on this one"
    fact card "$(first_line nvidia-smi --query-gpu=name,memory.total --format=csv,noheader)"
    fact driver "$(first_line nvidia-smi --query-gpu=driver_version --format=csv,noheader)"
    fact "CUDA of the driver" "$(nvidia-smi 2>/dev/null | sed -n 's/.*CUDA Version: \([0-9.]*\).*/\1/p')"
    fact "CUDA of the build" "$(echo "$built" | sed -n 's/^  CUDA  *//p')"
    fact program "$(first_line "$coeus" --version)"
    fact MPI "$(echo "$built" | sed -n 's/^  MPI   *//p')"
    fact ranks "$ranks, started by \`$launch -n $ranks\`"
    "$coeus" help options --markdown 2>"$logs/options.log" |
        sed -n 's/^- \*\*`\([^`]*\)`\*\*.*/\1/p' >"$work/options"
    [ -s "$work/options" ] ||
        failed facts "the program does not list its options: $(error_of "$logs/options.log")" options
    if [ "$ranks" -gt 1 ]; then
        # shellcheck disable=SC2016,SC2086 # the ranks' shell expands these; words
        attempt ranks 60 $launch -n "$ranks" sh -c '
            rank=${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-${PMI_RANK:-${SLURM_PROCID:-?}}}}
            echo "$(uname -n): rank $rank, cores $(sed -n "s/^Cpus_allowed_list:[[:space:]]*//p" /proc/self/status)," \
                "locked memory $(ulimit -l) KiB, $(nvidia-smi --list-gpus 2>/dev/null | wc -l) GPUs," \
                "CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES-}, OMP_NUM_THREADS=${OMP_NUM_THREADS-}"' ||
            failed ranks "$why" ranks
        sort "$logs/ranks.log" | page "Where the ranks are"
    fi
    command -v nvidia-smi >/dev/null && nvidia-smi topo -m 2>/dev/null | page "Links between GPUs"
}

write_data() { # the tokens of all runs: random words
    awk -v words="$1" -v count="$2" 'BEGIN { srand(1)
        for (i = 0; i < words; ++i) for (j = 0; j < 4; ++j) word[i] = word[i] sprintf("%c", 97 + int(26 * rand()))
        for (i = 0; i < count; ++i) printf "%s%s", word[int(words * rand())], i % 20 == 19 ? "\n" : " "
    }' >"$work/text.txt"
    attempt tokenizer 120 "$coeus" tokenizer "$work/text.txt" "--vocab_size=$1" --output "$work/tokenizer" &&
        attempt tokenize 120 "$coeus" tokenize "$work/text.txt" --tokenizer "$work/tokenizer" --output "$work/tokens.h5"
}

write_deck() { # write_deck DIM LAYERS HEADS KV_HEADS FFN VOCABULARY SEQUENCE TYPE
    cat >"$work/deck.toml" <<END
[model]
name = "llama3"
flavor = "debugmodel"
dim = $1
n_layers = $2
n_heads = $3
n_kv_heads = $4
ffn_hidden = $5
vocab_size = $6
max_seq_len = $7

[training]
dataset_path = "$work/tokens.h5"
shuffle = false
seq_len = $7
local_batch_size = 1
steps = $steps
dtype = "$8"

[lr_scheduler]
warmup_steps = 2

[metrics]
log_freq = 1

[comm]
init_timeout_seconds = 120

[checkpoint]
interval = 1000
last_save_model_only = false
END
}

# the sizes to try, the most informative first: four blocks of an 8B; a small one
sizes="large small" steps=8 warm_up=3 words=1000000 vocabulary=20000 padded=50304 odd=50257
[ -z "$tiny" ] || { sizes=tiny steps=3 warm_up=1 words=4000 vocabulary=300 padded=384 odd=331; }
deck_of() {
    case $1 in
        large) write_deck 4096 4 32 8 14336 128256 8192 bfloat16 ;;
        small) write_deck 1024 4 16 8 4096 32000 2048 float32 ;;
        tiny) write_deck 64 2 4 2 96 320 16 float32 ;;
    esac
}

# Finds a model that trains on all ranks, else on one; its first run also makes cuBLASLt's choices for the later ones.
# Sets `start` to the name of that run, and `trained` to its ranks (0: none).
start= trained=0
part_start() {
    [ -x "$coeus" ] || { failed start "there is no $coeus" && return; }
    if ! write_data "$vocabulary" "$words"; then
        failed start "no data: $why" "$(basename "$log" .log)"
        return
    fi
    counts=$ranks
    [ "$ranks" = 1 ] || counts="$ranks 1"
    for count in $counts; do
        for size in $sizes; do
            deck_of $size
            start=start-$size-$count
            if train $start "$count"; then trained=$count && break 2; fi
            failed "start, model $size, $count rank(s)" "$why" $start
            case $why in took*) break ;; esac
        done
        forget $start
    done
    [ $trained != 0 ] || { rm -f "$work/deck.toml" && return; }
    forget $start
    speed=$(median tps "$logs/$start.jsonl")
    verdict "training starts with $trained rank(s), model $size: $(whole "$speed") tokens/s per GPU"
    sed -n 's/.* - \(info\|warning\) - \(.*\)/\1: \2/p' "$logs/$start.log" |
        grep -E 'Computing on|exchange tensors|runs steps|Attention kernels|Start-up|^warning|GPU memory' |
        page "What the program says at its start"
    [ "$trained" = 1 ] || fact NCCL "$(sed -n 's/.*exchange tensors through //p' "$logs/$start.log" | head -n 1)"
    fact attention "$(sed -n 's/.*Attention kernels: //p' "$logs/$start.log" | head -n 1)"
    run_seconds=${COEUS_RUN_SECONDS:-$of_a_run}
    warnings_of $start >"$work/warnings"
    [ ! -s "$work/warnings" ] || verdict "warnings at the start: $(head -n 3 "$work/warnings" | on_one_line)"
    memory_verdict $start
}

memory_verdict() { # memory_verdict RUN: its plan, what it allocated, what the driver says
    plan=$(sed -n 's/^ *total  *\([0-9.]* [KMGT]*i*B\) .*/\1/p' "$logs/$1.log" | head -n 1)
    used=$(median gpu_memory_gib "$logs/$1.jsonl")
    allocated=$(median memory_gib "$logs/$1.jsonl")
    if [ -n "$used" ]; then used="$(echo "$used" | cut -c 1-6) GiB, by the driver"; else used="not reported by the driver"; fi
    verdict "GPU memory (B5, B28): planned ${plan:-unknown}, allocated $(echo "$allocated" | cut -c 1-6) GiB, in use: $used"
}

is_by_nccl() { grep -q 'exchange tensors through NCCL' "$logs/$start.log" 2>/dev/null; }

part_tests() {
    attempt tests 500 env "OUT=$out" COEUS_GPU_SECONDS=470 "$tests" "$folder"
    code=$?
    result=$(tail -n 1 "$logs/tests.log" 2>/dev/null)
    case $result in
        *passed,*failed) verdict "tests (run.sh): $result" ;;
        *) result= ;;
    esac
    bad=$(grep -E ' [1-9][0-9]* failed,' "$logs/tests.log" 2>/dev/null | cut -d ' ' -f 1 | on_one_line)
    [ $code = 0 ] || failed tests "${result:-$why}${bad:+; parts: $bad}" tests
    page "Tests" <"$logs/tests.log"
}

tool() { # tool NAME: prints the path of one of CUDA's tools
    PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin:/usr/local/cuda/bin command -v "$1" ||
        for path in /opt/nvidia/*/bin/"$1" /opt/nvidia/*/*/bin/"$1" /opt/nvidia/*/*/"$1"; do
            [ ! -x "$path" ] || { echo "$path" && return; }
        done
}

# memcheck and racecheck are parts of run.sh
part_initcheck() {
    sanitizer=$(tool compute-sanitizer)
    [ -n "$sanitizer" ] || { skipped initcheck "there is no compute-sanitizer" && return; }
    if [ -x "$folder/run" ]; then set -- "$folder/run" test_gpu; else set -- "$folder/tests/test_gpu"; fi
    attempt initcheck 150 env COEUS_GPU_CASES=few "$sanitizer" --tool initcheck --target-processes all --error-exitcode 1 \
        "$@" "GPU kernels agree*"
    code=$?
    if grep -q 'Device not supported' "$log"; then
        skipped initcheck "compute-sanitizer does not support this device"
    elif [ $code = 0 ]; then
        verdict "initcheck: no read of uninitialised memory"
    else
        failed initcheck "$why" initcheck
    fi
}

part_nccl() {
    [ "$trained" -gt 1 ] || { skipped nccl "it needs several ranks that train" && return; }
    is_by_nccl || { skipped nccl "the ranks do not use NCCL" && return; }
    train nccl "$trained" NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,TUNING,GRAPH --training.steps=3 ||
        failed nccl "$why" nccl
    forget nccl
    # how often each collective uses which algorithm and protocol, and the channels of each communicator
    {
        grep -E 'Bytes -> Algo' "$logs/nccl.log" |
            sed -E 's/.*NCCL INFO //; s/[0-9]+ Bytes/N Bytes/; s/ time [0-9.]+//; s/[0-9a-fx]{8,}//g'
        grep -E 'coll channels' "$logs/nccl.log" | sed -E 's/.*NCCL INFO //'
        grep -oE 'NCCL version .*|NVLS multicast support.*' "$logs/nccl.log"
    } | sort | uniq -c | sort -rn | head -n 40 | page "What NCCL chose"
    algorithms=$(grep -oE 'Algo [A-Za-z0-9_]+ proto [A-Za-z0-9_]+' "$logs/nccl.log" | sort | uniq -c | sort -rn | head -n 4)
    verdict "NCCL: $(sed -n 's/.*exchange tensors through //p' "$logs/nccl.log" | head -n 1)," \
        "algorithms: $(echo "$algorithms" | on_one_line)"
}

part_links() {
    [ "$trained" -gt 1 ] || { skipped links "it needs several ranks that train" && return; }
    set -- "$folder/bench/gpu_collectives"
    [ ! -x "$folder/run" ] || set -- "$folder/run" gpu_collectives
    for mesh in dp_shard tp; do
        degree=$trained
        [ $mesh = dp_shard ] || degree=$tp
        if [ $mesh = tp ] && { [ "$tp" = 1 ] || [ "$tp" = "$trained" ]; }; then continue; fi
        # shellcheck disable=SC2086 # words
        attempt links-$mesh 120 $launch -n "$trained" "$@" $mesh="$degree" ${tiny:+from=4096 to=65536} ||
            failed "links, $mesh" "$why" links-$mesh
        page "gpu_collectives $mesh=$degree, as levels of a machine file" <"$logs/links-$mesh.log"
    done
}

# compare A B: the last checkpoints and the losses of two runs, bit by bit. Sets `differs` (empty: they are equal).
compare() {
    if ! attempt "diff-$1-$2" 120 "$coeus" info "$work/$1" --diff "$work/$2"; then
        differs="they cannot be compared: $why"
        return
    fi
    differs=$(grep ' differ$' "$logs/diff-$1-$2.log" | grep -v 'none differ$')
    for one in "$1" "$2"; do
        sed -n 's/^\({"step":[0-9]*,"loss":.*"grad_norm":[^,]*\),.*/\1/p' "$logs/$one.jsonl" >"$work/$one.losses"
    done
    cmp -s "$work/$1.losses" "$work/$2.losses" || differs="losses or norms; ${differs:-no arrays}"
    [ -s "$work/$1.losses" ] || differs="there are no losses"
}

# bits_of RUN WHAT [WORD ...]: trains, and compares weights, moments and losses with those of bits-1
bits_of() {
    run=$1 what=$2 differs=
    shift 2
    if ! train "$run" "$trained" --checkpoint.enable "$@"; then failed "$run" "$why" "$run" && return; fi
    compare bits-1 "$run"
    verdict "$what: $([ -z "$differs" ] && echo "the same bits" || echo "DIFFERENT: $differs")"
    forget "$run" # checkpoints are large
}

part_bits() {
    [ "$trained" -gt 0 ] || { failed bits "no model could be trained" && return; }
    if ! train bits-1 "$trained" --checkpoint.enable; then failed bits-1 "$why" bits-1 && return; fi
    bits_of bits-2 "two equal runs on $trained rank(s) (B1)"
    [ -z "$differs" ] || failed bits "two equal runs on $trained rank(s): $differs" diff-bits-1-bits-2
    if grep -q 'runs steps as CUDA graphs' "$logs/bits-1.log"; then
        bits_of bits-eager "steps as graphs and kernel by kernel" --training.disable_cuda_graphs
        [ -z "$differs" ] || failed bits "steps as graphs and kernel by kernel: $differs" diff-bits-1-bits-eager
    else
        skipped "bits of graphs" "steps do not run as CUDA graphs here"
    fi
    # for the report only: these sums may differ
    ! is_by_nccl || bits_of bits-nvls "with comm.deterministic = false" --comm.deterministic=false
    forget bits-1
}

# Settings that are compared: number of the finding; what it needs (words: 2: two ranks; tp: two GPUs on a host; nccl;
# sm_90: such a GPU; sm_89+: such a GPU or a later one); what it is; the words with it; without it; of both. Words with
# -- are options, others are variables of the environment. Kernels that have run least come first.
most=$gpus tp=1 # tensor parallelism stays within a host
[ -z "$tiny" ] || most=2
while [ $((2 * tp)) -le "$most" ] && [ $((2 * tp)) -le "$ranks" ] && [ $tp -lt 8 ]; do tp=$((2 * tp)); done
rotate=--parallelism.context_parallel_rotate_method async=--parallelism.enable_async_tensor_parallel
reshard=--parallelism.fsdp_reshard_after_forward recompute=--activation_checkpoint.mode
# 64 of them, 8 for each token; in few layers with a small vocabulary their products are most of a step
experts="--model.name=qwen3 --model.flavor=debugmodel_moe --model.n_layers=2 --model.vocab_size=$padded"
eight="--model.converters=quantize.grouped_mm.float8 --quantize.grouped_mm.float8.fqns=experts"
linear="--model.converters=quantize.linear.float8 --quantize.linear.float8.filter_fqns=output"
settings=$(cat <<END
B1;nccl;sums without NVLS;--comm.deterministic=true;--comm.deterministic=false;
B2;nccl;NCCL keeps the order of operations;NCCL_LAUNCH_ORDER_IMPLICIT=1;NCCL_LAUNCH_ORDER_IMPLICIT=0;--comm.max_ctas=8
B6;nccl;NCCL on 16 blocks;--comm.max_ctas=16;--comm.max_ctas=0;
B6;nccl;NCCL on 8 blocks;--comm.max_ctas=8;--comm.max_ctas=0;
B6;nccl;products leave 16 multiprocessors;--kernels.sm_margin=16;--kernels.sm_margin=0;
experts;sm_90;products of experts by wgmma;--kernels.experts=wgmma;--kernels.experts=mma;$experts
experts;sm_90;products of experts by wgmma, with copies by TMA;--kernels.experts=tma;--kernels.experts=wgmma;$experts
experts;sm_89+;products of experts in 8 bits, by their codes, beside decoded ones;--kernels.experts_in_8_bits=true;--kernels.experts_in_8_bits=false;$experts $eight
float8;sm_89+;linear layers in 8 bits, with one scale for each matrix, beside bfloat16;$linear;;
float8;sm_89+;linear layers in 8 bits, with a scale for each row, beside bfloat16;$linear --quantize.linear.float8.recipe_name=rowwise;;
B14;;gradients in bfloat16;--training.gradient_dtype=bfloat16;--training.gradient_dtype=float32;
B15;;logits in chunks of 1 GiB, beside 256 MiB;--kernels.logits_chunk_mib=1024;--kernels.logits_chunk_mib=256;
B7;;steps as CUDA graphs;--training.disable_cuda_graphs=false;--training.disable_cuda_graphs=true;
B11;;attention by cuDNN;--kernels.attention=auto;--kernels.attention=own;
B11;;the same bits each time;--kernels.deterministic=true;--kernels.deterministic=false;
B12;;a vocabulary that is not a multiple of 8, with padded rows of logits, beside a multiple of 64;--model.vocab_size=$odd;--model.vocab_size=$padded;
B13;;measured choice of cuBLASLt's algorithms;--kernels.autotune=true;--kernels.autotune=false;
B17;;TF32 in float32;--kernels.allow_tf32=true;--kernels.allow_tf32=false;--training.mixed_precision_param=float32
B18;2;context parallel as a ring;$rotate=alltoall;$rotate=allgather;--parallelism.context_parallel_degree=2
B19;tp;asynchronous tensor parallelism;$async=true;$async=false;--parallelism.tensor_parallel_degree=$tp
B20;2;communication before computation;--kernels.stream_priorities=true;--kernels.stream_priorities=false;
B21;2;prefetch of two units;--parallelism.fsdp_prefetch=2;--parallelism.fsdp_prefetch=1;
B29;2;every step observed, which needs steps without graphs;--metrics.straggler_freq=1;--metrics.straggler_freq=0;--training.disable_cuda_graphs
other;nccl;exchange by NCCL;--comm.transport=nccl;--comm.transport=staged;
other;2;weights gathered again for the backward;$reshard=always;$reshard=never;
other;;norms and activations recomputed;$recompute=selective;$recompute=none;--activation_checkpoint.selective_ac_option=op
other;;blocks recomputed;$recompute=full;$recompute=none;
other;;moments on the host;--training.enable_cpu_offload=true;--training.enable_cpu_offload=false;$recompute=full
END
)

# 90 for an H100, as in sm_90; empty if the driver does not say
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -cd 0-9)

why_not_by() { # why_not_by NEED: prints why this machine does not have it
    case $1 in
        sm_*)
            least=${1#sm_} least=${least%+}
            [ -n "$capability" ] || return
            case $1 in
                *+) [ "$capability" -ge "$least" ] || echo "it needs a GPU of sm_$least or later; this one is of sm_$capability" ;;
                *) [ "$capability" = "$least" ] || echo "it needs a GPU of sm_$least; this one is of sm_$capability" ;;
            esac
            ;;
        *)
            if [ "$trained" = 1 ]; then echo "it needs several ranks"; fi
            if [ "$1" = tp ] && [ "$trained" -gt 1 ] && [ $tp = 1 ]; then echo "it needs two GPUs on a host"; fi
            if [ "$1" = nccl ] && [ "$trained" -gt 1 ] && ! is_by_nccl; then echo "the ranks do not use NCCL"; fi
            ;;
    esac
}

# why_not NEEDS WORD ...: prints why a setting cannot be compared
why_not() {
    needs=$1
    shift
    for word in "$@"; do
        option=${word#--} option=${option%%=*}
        case $word in
            --*) grep -qxF "$option" "$work/options" || { echo "this program has no option $option" && return; } ;;
        esac
    done
    [ "$trained" != 0 ] || { echo "no model could be trained" && return; }
    for need in $needs; do why_not_by "$need"; done | head -n 1
}

# Files of row N of the table: N.with and N.without have a figure of each turn, N.starts has the seconds of start of
# each run, N.tried is there after the first try, N.note is why there is no figure of the last try, and N.warnings are
# those that the start does not have as well.
note_setting() { echo "$2" >"$work/rates/$1.note"; } # note_setting ROW TEXT

is_chosen() { case " $numbers " in "  " | *" $1 "*) ;; *) return 1 ;; esac }

# rows_to_run first|others|all: prints the numbers of rows: those that were never tried, the measured ones, and those
# that failed. `first`: of the six that are measured twice before the others, without those that failed.
rows_to_run() {
    row=0
    while IFS=';' read -r number _; do
        row=$((row + 1)) order=3
        is_chosen "$number" || continue
        if [ -f "$work/rates/$row.with" ] && [ -f "$work/rates/$row.without" ]; then order=2; fi
        [ -f "$work/rates/$row.tried" ] || order=1
        if grep -qx "$row" "$work/first_rows"; then is_first=yes; else is_first=; fi
        case $1$is_first in
            firstyes) [ $order != 3 ] || continue ;;
            first | othersyes) continue ;;
        esac
        echo "$order $row"
    done <"$work/settings" | sort -s -n -k 1,1 | cut -d ' ' -f 2
}

first_rows() { # prints the numbers of the first six rows that this machine can run
    row=0
    while IFS=';' read -r number needs _ with without both; do
        row=$((row + 1))
        is_chosen "$number" || continue
        # shellcheck disable=SC2086 # words
        [ -n "$(why_not "$needs" $with $without $both)" ] || echo "$row"
    done <"$work/settings" | head -n 6
}

note_warnings() { # note_warnings ROW WHAT KIND RUN
    warnings_of "$4" | grep -vxF -f "$work/warnings" | sed "s/^/$3: /" | while read -r line; do
        grep -qxF "$line" "$work/rates/$1.warnings" 2>/dev/null && continue
        echo "$line" >>"$work/rates/$1.warnings"
        verdict "warning of setting $2, $line"
    done
}

run_setting() { # run_setting ROW KIND WORD ...: trains, and keeps the speed. Returns 1 if the other kind need not be run
    row=$1 kind=$2 name=setting-$1-$2-$turn
    shift 2
    if train "$name" "$trained" "$@"; then
        median tps "$logs/$name.jsonl" >>"$work/rates/$row.$kind"
        sed -n 's/.*Start-up \([0-9.]*\) s.*/\1/p' "$logs/$name.log" | head -n 1 >>"$work/rates/$row.starts"
        note_warnings "$row" "$number, $what" "$kind" "$name"
    elif [ "$limit" -lt "$run_seconds" ] && [ $((deadline - $(now))) -le 0 ]; then
        note_setting "$row" "no time was left" # it was cut off
        rm -f "$work/rates/$row.tried"
        return 1
    else
        note_setting "$row" "$kind: $why"
        case $why in
            *"not implemented yet"*) ;;
            *) failed "setting $number, $what, $kind" "$why" "$name" ;;
        esac
    fi
    forget "$name"
}

run_settings() { # run_settings TURN first|others|all
    turn=$1
    rows_to_run "$2" >"$work/rows"
    while read -r row; do
        IFS=';' read -r number needs what with without both <<END
$(sed -n "${row}p" "$work/settings")
END
        # shellcheck disable=SC2086 # words
        reason=$(why_not "$needs" $with $without $both)
        if [ -n "$reason" ]; then note_setting "$row" "$reason" && continue; fi
        if [ $((deadline - $(now))) -le 0 ]; then
            [ -f "$work/rates/$row.tried" ] || note_setting "$row" "no time was left"
            continue
        fi
        : >"$work/rates/$row.tried"
        rm -f "$work/rates/$row.note"
        # shellcheck disable=SC2086 # words
        run_setting "$row" with $with $both && run_setting "$row" without $without $both
        echo "   $number $what: $(tail -n 1 "$work/rates/$row.with" 2>/dev/null) with," \
            "$(tail -n 1 "$work/rates/$row.without" 2>/dev/null) tokens/s without"
        write_report
    done <"$work/rows"
}

settings_left_out() { # prints those for which no time was left
    row=0
    while IFS=';' read -r number _ what _; do
        row=$((row + 1))
        ! grep -qsxF "no time was left" "$work/rates/$row.note" || echo "- setting $number, $what: no time was left"
    done <"$work/settings"
}

settings_table() ( # a subshell: it has variables of its own
    echo '| | setting | with | tokens/s | without | tokens/s | ratio | noise | start, s | |'
    echo '|---|---|---|---:|---|---:|---:|---:|---:|---|'
    row=0
    while IFS=';' read -r number needs what with without both; do
        row=$((row + 1))
        is_chosen "$number" || continue
        note=$(cat "$work/rates/$row.note" "$work/rates/$row.warnings" 2>/dev/null | sed '$!s/$/;/' | on_one_line)
        what="$what${both:+ (\`$both\`)}"
        starts=$(sort -g "$work/rates/$row.starts" 2>/dev/null | tail -n 1)
        for kind in with without; do sed "s/^/$kind /" "$work/rates/$row.$kind" 2>/dev/null; done |
            awk -v number="$number" -v what="$what" -v with="${with:+\`$with\`}" -v without="${without:+\`$without\`}" -v note="$note" -v starts="$starts" '
            { sum[$1] += $2; n[$1]++; if (!($1 in low) || $2 < low[$1]) low[$1] = $2; if ($2 > high[$1]) high[$1] = $2 }
            END {
                ratio = noise = a = b = ""
                if (n["with"]) a = sprintf("%.0f", sum["with"] / n["with"])
                if (n["without"]) b = sprintf("%.0f", sum["without"] / n["without"])
                if (a > 0 && b > 0) ratio = sprintf("%.3f", sum["with"] / n["with"] / (sum["without"] / n["without"]))
                for (kind in n)
                    if (n[kind] > 1) {
                        d = 100 * (high[kind] - low[kind]) * n[kind] / sum[kind]
                        if (most == "" || d > most) most = d
                    }
                if (most != "") noise = sprintf("%.1f %%", most)
                printf "| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", number, what, with, a, without, b, ratio, noise, starts, note
            }'
    done <"$work/settings"
)

# two turns of the first rows: without noise, a ratio near 1 says nothing
part_settings() {
    first_rows >"$work/first_rows"
    run_settings 1 first
    run_settings 2 first
    run_settings 1 others
}
part_settings_again() { run_settings 3 all; } # with the time that is left

part_kernels() {
    # each kernel of experts in a process of its own, as it may hang or end the process
    while read -r limit program kernel; do
        # shellcheck disable=SC2086 # an empty name gives no argument
        set -- $kernel
        case $program$tiny in
            gpu_rowsyes) set -- --small ;;
            gpu_groupedyes) set -- "$kernel" 2 40 32 48 ;;
            gpu_gemmyes) set -- 16 ;;
            gpu_attentionyes) set -- 1 16 2 2 16 ;;
        esac
        name=$program${kernel:+-$kernel} what=$program${kernel:+ $kernel}
        bench_program "$name" "$limit" "$program" "$@" || failed "$what" "$why" "$name"
        [ ! -f "$logs/$name.log" ] || page "$what" <"$logs/$name.log"
    done <<END
60 gpu_rows
60 gpu_attention
60 gpu_gemm
60 gpu_grouped wgmma+tma
60 gpu_grouped wgmma
60 gpu_grouped mma
60 gpu_grouped decoded+tma
60 gpu_grouped decoded
60 gpu_grouped codes
END
}

# a profile of the first rank
part_nsys() {
    nsys=$(tool nsys)
    [ -n "$nsys" ] || { skipped nsys "there is no nsys" && return; }
    [ "$trained" -gt 0 ] || { failed nsys "no model could be trained" && return; }
    cat >"$work/under_nsys" <<END
#!/bin/sh
[ "\${OMPI_COMM_WORLD_RANK:-\${PMIX_RANK:-\${PMI_RANK:-\${SLURM_PROCID:-0}}}}" = 0 ] || exec "\$@"
exec "$nsys" profile --trace=cuda,nvtx --cuda-graph-trace=node --force-overwrite=true --output="$out/\$PROFILE" \
    "\$@"
END
    chmod +x "$work/under_nsys"
    for kind in graphs eager; do
        eager=$([ $kind = graphs ] && echo false || echo true)
        under=$work/under_nsys
        train nsys-$kind "$trained" PROFILE=nsys-$kind --training.steps=5 --training.disable_cuda_graphs=$eager
        code=$? under=
        forget nsys-$kind
        if [ $code = 0 ] && [ -f "$out/nsys-$kind.nsys-rep" ]; then
            verdict "nsys, steps $kind: nsys-$kind.nsys-rep"
            attempt nsys-$kind-kernels 60 "$nsys" stats --report cuda_gpu_kern_sum "$out/nsys-$kind.nsys-rep"
        else
            failed nsys-$kind "${why:-there is no nsys-$kind.nsys-rep}" nsys-$kind
        fi
    done
}

part_ncu() {
    ncu=$(tool ncu)
    [ -n "$ncu" ] || { skipped ncu "there is no ncu" && return; }
    # the first launches of AdamW, norms, all three products of experts, attention's forward, and our backward
    while IFS=';' read -r kernels need launches program arguments names; do
        reason=
        [ -z "$need" ] || reason=$(why_not_by "$need")
        if [ -n "$reason" ]; then skipped "ncu, $kernels" "$reason" && continue; fi
        if [ -x "$folder/run" ]; then set -- "$folder/run" "$program"; else set -- "$folder/bench/$program"; fi
        # shellcheck disable=SC2086 # words
        attempt ncu-$kernels 120 "$ncu" --set full --clock-control none --target-processes all \
            --kernel-name "regex:$names" --launch-count "$launches" --force-overwrite --export "$out/$kernels" "$@" $arguments
        code=$?
        if [ $code = 0 ] && [ -f "$out/$kernels.ncu-rep" ]; then verdict "ncu: $kernels.ncu-rep"; else
            failed "ncu, $kernels" "${why:-there is no $kernels.ncu-rep}" ncu-$kernels
        fi
    done <<END
adam;;2;gpu_rows;adam;adam_kernel
norms;;8;gpu_rows;norms;norm
experts;;6;gpu_grouped;mma 8 2048 2048 2816;grouped_gemm_mma
attention;;8;gpu_attention;1 4096 32 8 128;attention|sdpa|fmha|flash
gradients;;8;gpu_attention;1 4096 32 8 128;gradients
experts-codes;sm_89+;6;gpu_grouped;codes 8 2048 2048 2816;grouped_gemm_8_bit
experts-wgmma;sm_90;9;gpu_grouped;wgmma 8 2048 2048 2816;grouped_gemm_wgmma
experts-tma;sm_90;9;gpu_grouped;wgmma+tma 8 2048 2048 2816;grouped_gemm_tma
END
}

part_bench() {
    cases="7B-1024 8B-8192 2B-8192 2B-8192-tensorwise 2B-8192-rowwise"
    [ -z "$tiny" ] || cases="tiny-32 tiny-bf16-48"
    counts=1
    [ "$trained" -le 1 ] || counts="1 $trained"
    for count in $counts; do
        limit=$((deadline - $(now)))
        [ "$counts" = "$count" ] || [ "$count" != 1 ] || limit=$((limit / 2))
        # to end its last run, and to report
        margin=60
        [ $limit -gt $((2 * margin)) ] || margin=$((limit / 2))
        # shellcheck disable=SC2086 # words
        attempt bench-$count $limit env "OUT=$out/bench-$count" RANKS=$count "LAUNCH=$launch" \
            COEUS_GPU_SECONDS=$((limit - margin)) sh "$bench" "$folder" $cases ||
            failed "bench, $count rank(s)" "$why" bench-$count
        if [ -f "$out/bench-$count/gpu-bench/gpu-bench.md" ]; then
            page "bench/gpu.sh, $count rank(s)" <"$out/bench-$count/gpu-bench/gpu-bench.md"
        fi
    done
}

# --- the report

list() { # list TITLE FILE
    [ ! -s "$2" ] || { printf '\n## %s\n\n' "$1" && cat "$2"; }
}

write_report() {
    {
        echo "# The first hour on $(uname -n)"
        echo
        echo "$(date -u +%Y-%m-%dT%H:%M:%SZ), $((($(now) - begin) / 60)) minutes," \
            "\`first_hour.sh${arguments:+ $arguments}\`${ended:+. It was $ended}"
        printf '\n| | |\n|---|---|\n' && cat "$work/facts"
        list "Verdicts" "$work/verdicts"
        settings_table >"$work/table"
        awk -F ' *[|] *' 'NR > 2 && $8 != "" && ($8 > 1.03 || $8 < 0.97) && ($8 - 1) ^ 2 > ($9 / 100) ^ 2 {
            printf "- %s %s: %s times the speed of %s%s%s\n", $2, $4, $8, $6 == "" ? "a run without it" : $6,
                $9 == "" ? "" : ", noise " $9, $11 == "" ? "" : ". " $11
        }' "$work/table" >"$work/effects"
        list "Settings that change the speed by more than 3 %, and more than the noise" "$work/effects"
        printf '\n## Settings, with and without\n\n'
        echo "Tokens/s of a GPU, median of the steps after the warm-up, mean of all turns. Ratio: with / without. Noise: how"
        echo "much the turns of one kind differ. Start: the longest of a run's starts. Numbers are those of the findings in the"
        echo "review of the GPU code."
        echo
        cat "$work/table"
        echo
        echo "Without a setting: B3 (driver, CUDA) is in the first table; B5 and B28 (memory) are among the verdicts; B8 and B9"
        echo "(GPUs hidden by Slurm, or far from their cores) are warnings of the start. The others have tests only."
        list "What failed" "$work/failed"
        { cat "$work/skipped" && settings_left_out; } >"$work/left_out"
        list "What was skipped" "$work/left_out"
        printf '\n## Parts\n\n| part | seconds |\n|---|---:|\n' && cat "$work/parts"
        cat "$work/pages"
    } >"$out/report.part" && mv "$out/report.part" "$out/report.md"
}

pack() {
    rm -rf "$work"
    name=$(basename "$out")
    rm -f "$out".tar.*
    if command -v zstd >/dev/null; then
        tar -C "$(dirname "$out")" -cf - "$name" | zstd -q -o "$out.tar.zst"
    else
        tar -C "$(dirname "$out")" -czf "$out.tar.gz" "$name"
    fi
    ls "$out".tar.*
}

ended=
finish() { # the report of what there is; ends the script
    trap '' INT TERM HUP EXIT
    [ -z "$ended" ] || failed "$part" "$ended"
    bad=$(grep -c . "$work/failed") good=$(grep -c . "$work/parts")
    write_report
    pack
    if [ -n "$short" ]; then # files that can be taken away
        mv "$out/report.md" "$(dirname "$out")/report.md" && rm -rf "$out"
        out=$(dirname "$out")
    fi
    echo "$out/report.md: $good parts ran, $bad failures"
    [ "$bad" = 0 ] || exit 1
    exit 0
}

end_by() { # a signal: stops the run, and reports
    ended="ended by SIG$1"
    [ -z "$running" ] || { kill "$running" && wait "$running"; } 2>/dev/null
    finish
}
part() { # part NAME SECONDS FUNCTION
    is_wanted "$1" || return 0
    part=$1 since_part=$(now)
    if [ $((end - since_part)) -le 0 ]; then skipped "$1" "no time was left" && return; fi
    deadline=$((since_part + $2))
    [ $deadline -le "$end" ] || deadline=$end
    echo "== $1"
    $3
    echo "| $1 | $(($(now) - since_part)) |" >>"$work/parts"
    write_report
}

names="facts start nccl links bits kernels tests initcheck settings bench nsys ncu settings-again"
numbers=
for word in $wanted; do
    if [ "$word" = all ]; then continue; fi
    case " $names " in
        *" $word "*) ;;
        *)
            if ! echo "$settings" | grep -q "^$word;"; then
                echo "there is no part $word; the parts are $names $(echo "$settings" | cut -d ';' -f 1 | uniq | on_one_line), after \`short\` or alone" >&2
                exit 2
            fi
            numbers="$numbers$word " wanted="$wanted settings" ;;
    esac
done
case " $wanted " in *" all "*) ;; *) wanted="facts start $wanted" ;; esac # the others need these

rm -rf "$out"
[ -z "$short" ] || rm -f "$(dirname "$out")/report.md"
mkdir -p "$logs" "$work/rates" || exit 2
for file in facts verdicts failed skipped parts pages options first_rows; do : >"$work/$file"; done
echo "$settings" >"$work/settings"
trap 'end_by INT' INT
trap 'end_by TERM' TERM
trap 'end_by HUP' HUP
trap 'ended="ended by an error of this script"; finish' EXIT

echo "the first hour on $(uname -n): $ranks rank(s), logs: $logs"
part facts 120 part_facts
part start 600 part_start
part nccl 180 part_nccl
part links 300 part_links
part bits 360 part_bits
part kernels $of_kernels part_kernels
part tests 500 part_tests
part initcheck 150 part_initcheck
part settings 1200 part_settings
part bench 700 part_bench
part nsys 300 part_nsys
part ncu 450 part_ncu
part settings-again 1200 part_settings_again
finish
