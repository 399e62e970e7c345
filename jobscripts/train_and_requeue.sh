# SPDX-License-Identifier: Apache-2.0
# The life of a training job, sourced by every train.sbatch: starts the ranks, passes signals on to them, and decides
# from their exit code whether the job is queued again. env.sh says what `launch` and `coeus` are.

most_crashes=3 # in a row, without a new checkpoint
most_stops=20  # the same of ends in order

# a task of an array is a job of its own
job=$SLURM_JOB_ID
[ -z "${SLURM_ARRAY_TASK_ID-}" ] || job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID

crashes=coeus-$job.crashes # "STEP COUNT": how often training crashed after this newest checkpoint
stops=coeus-$job.stops     # the same of ends in order
# there when this start was told to end; ranks that had not begun by then look for it
export COEUS_STOP_FILE=$PWD/coeus-$job.told
# written by rank 0: "complete" when training has reached its last step, "lost_folder" when another run has its folder
export COEUS_DONE_FILE=$PWD/coeus-$job.done

say() {
    echo "$(date '+%F %T') job $job: $*"
}

# write_new FILE TEXT: a link that somebody put there is not followed
write_new() {
    rm -f "$1" && (set -o noclobber && echo "$2" >"$1") 2>/dev/null
}

tell_to_end() { # SIGNAL
    if [ -L "$COEUS_STOP_FILE" ] || [ ! -e "$COEUS_STOP_FILE" ]; then write_new "$COEUS_STOP_FILE" "$1"; fi
    # Slurm sends TERM to the tasks that srun started by itself
    [ -z "$ranks" ] || [ "$1 ${launch[0]##*/}" = "TERM srun" ] || kill -USR1 "$ranks" 2>/dev/null
}

# USR1 or USR2 comes from --signal before the time is over, TERM when the job is preempted or cancelled: the ranks
# save, and end with 75. A signal interrupts `wait`, which then tells nothing of the ranks.
run_ranks() {
    [ ! -e "$COEUS_STOP_FILE" ] || return 75
    "${launch[@]}" "${coeus[@]}" train "$@" &
    ranks=$!
    while wait $ranks; kill -0 $ranks 2>/dev/null; do :; done
    wait $ranks || return
    # mpirun of Open MPI 5 ends with 0 also if a signal to all of the job ended its daemons
    if [[ ${launch[0]##*/} = mpi* && ! -e $COEUS_DONE_FILE ]]; then
        say "mpirun ended before training did"
        return 1
    fi
}

forget_this_start() {
    rm -f "$COEUS_STOP_FILE" "$COEUS_DONE_FILE"
}

stop() {
    say "stopped: $*"
    forget_this_start
    exit "$code"
}

queue_again() {
    # Slurm ends this script once the job is queued, and perhaps scontrol before it has answered
    scontrol requeue "$job" || [ $? -gt 128 ] ||
        stop "$*, and Slurm does not queue this job again; the same sbatch line goes on from the newest checkpoint"
    say "$*; queued again"
    forget_this_start
    exit "$code"
}

# count_at_step FILE ARGUMENTS...: sets `step`, of the newest checkpoint, and `count`, how often this was called there
count_at_step() {
    local file=$1 last_step=none last_count=0
    shift
    step=$("${coeus[@]}" info --newest_step "$@")
    [[ $step =~ ^[0-9]+$ ]] || step=0
    if [ -L "$file" ]; then
        say "$file is a link; it is not followed, and the count begins again"
    elif [ -f "$file" ]; then
        read -r last_step last_count <"$file"
    fi
    count=1
    # arithmetic evaluates text, and others may write to this folder: digits alone are taken
    if [ "$step" = "$last_step" ] && [[ $last_count =~ ^[1-9][0-9]{0,5}$ ]]; then count=$((last_count + 1)); fi
    write_new "$file.part" "$step $count" && mv -fT "$file.part" "$file"
    [ "$(cat "$file" 2>/dev/null)" != "$step $count" ] || return 0
    rm -f "$file.part"
    # Slurm's own count ends the job too
    count=$((${SLURM_RESTART_COUNT:-0} + 1))
    say "$PWD/$file cannot be written (is the disk full?): the job's starts are counted instead, $count so far"
}

# "exit code 139, SIGSEGV"
code_text() {
    local name
    name=$([ "$code" -gt 128 ] && kill -l $((code - 128)) 2>/dev/null) && name=", SIG$name"
    echo "exit code $code$name"
}

# A job that never gets beyond its checkpoint, or saves none, would be queued again for ever.
queue_again_after_stop() {
    local step count what="training ended in order before its last step"
    [ "$code" = 75 ] || what="training was told to end, and ended before it was saved ($(code_text))"
    count_at_step "$stops" "$@"
    [ $count -lt $most_stops ] ||
        stop "training was ended $count times at the checkpoint of step $step, without another one: does the deck save" \
            "(checkpoint.enable), and is the job's time longer than a start and checkpoint.walltime_margin?"
    queue_again "$what"
}

# A job that crashes again and again at the same place is not worth its time.
queue_again_after_crash() {
    local step count what
    what=$(code_text)
    count_at_step "$crashes" "$@"
    [ $count -lt $most_crashes ] ||
        stop "training crashed $count times ($what) after the checkpoint of step $step, without another one. The reason" \
            "is above; once it is mended, the same sbatch line goes on"
    queue_again "training crashed ($what), $count of $most_crashes times after the checkpoint of step $step"
}

train_and_requeue() {
    local ranks= state
    forget_this_start
    trap 'tell_to_end USR1' USR1 USR2
    trap 'tell_to_end TERM' TERM
    # each job of an array is a run of its own: --job.dump_folder=outputs/run_%a
    set -- "${@//%a/${SLURM_ARRAY_TASK_ID-%a}}"
    # for ranks in a container, which has no squeue
    COEUS_JOB_END=$(SLURM_TIME_FORMAT=%s squeue --noheader --jobs="$job" --format=%e)
    export COEUS_JOB_END
    say "start $((${SLURM_RESTART_COUNT:-0} + 1)) on $SLURM_JOB_NODELIST: ${launch[*]} ${coeus[*]} train $*"
    code=2
    "${coeus[@]}" info --build >/dev/null || stop "the program cannot be started here: ${coeus[*]}"
    run_ranks "$@"
    code=$?
    if [ $code = 0 ]; then
        rm -f "$crashes" "$stops"
        forget_this_start
        say "training is complete"
        return
    fi
    # after scancel, scontrol requeue, or where a node is down, it is Slurm who ends the job, and queues it again or not
    # a Slurm that does not answer is busy, or being restarted
    for _ in {1..12}; do
        state=$(squeue --noheader --jobs="$job" --format=%T) && break
        state=RUNNING
        sleep 10
    done
    [ "$(cat "$COEUS_DONE_FILE" 2>/dev/null)" != lost_folder ] ||
        stop "another run has the folder of this one by now, as said above"
    [ "$state" = RUNNING ] || stop "Slurm ends this job (${state:-it is not known to it any more})"
    case $code in
        2) stop "this cannot be trained (the deck, the command line, the data or the folder), as said above" ;;
        4) stop "the loss or a gradient was not finite, as said above; the same would come again" ;;
        75) queue_again_after_stop "$@" ;;
        *) if [ -e "$COEUS_STOP_FILE" ]; then queue_again_after_stop "$@"; else queue_again_after_crash "$@"; fi ;;
    esac
}
