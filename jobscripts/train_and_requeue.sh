# SPDX-License-Identifier: Apache-2.0
# Runs a training job; sourced by every train.sbatch. Starts the ranks, forwards signals to them, and decides by their
# exit code whether the job is requeued. env.sh sets `launch` and `coeus`.

most_crashes=3 # crashes in a row without a new checkpoint
most_stops=20  # the same for regular ends

# each task of a job array counts as a separate job
job=$SLURM_JOB_ID
[ -z "${SLURM_ARRAY_TASK_ID-}" ] || job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID

crashes=coeus-$job.crashes # "STEP COUNT": step of the newest checkpoint, and number of crashes after it
stops=coeus-$job.stops     # the same for regular ends
# exists after this start was told to end; ranks that start later check for it
export COEUS_STOP_FILE=$PWD/coeus-$job.told
# written by rank 0: "complete" if training has reached its last step, "lost_folder" if another run uses its folder
export COEUS_DONE_FILE=$PWD/coeus-$job.done

say() {
    echo "$(date '+%F %T') job $job: $*"
}

# write_new FILE TEXT: writes a new file, and does not follow a link with that name
write_new() {
    rm -f "$1" && (set -o noclobber && echo "$2" >"$1") 2>/dev/null
}

tell_to_end() { # SIGNAL
    if [ -L "$COEUS_STOP_FILE" ] || [ ! -e "$COEUS_STOP_FILE" ]; then write_new "$COEUS_STOP_FILE" "$1"; fi
    # Slurm itself sends TERM to the tasks of srun
    [ -z "$ranks" ] || [ "$1 ${launch[0]##*/}" = "TERM srun" ] || kill -USR1 "$ranks" 2>/dev/null
}

# --signal sends USR1 or USR2 before the time limit. TERM arrives when the job is preempted or cancelled. The ranks then
# save and exit with 75. A signal interrupts `wait`, whose result is then not that of the ranks.
run_ranks() {
    [ ! -e "$COEUS_STOP_FILE" ] || return 75
    "${launch[@]}" "${coeus[@]}" train "$@" &
    ranks=$!
    while wait $ranks; kill -0 $ranks 2>/dev/null; do :; done
    wait $ranks || return
    # mpirun of Open MPI 5 also exits with 0 if a signal to the whole job ended its daemons
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
    # Slurm ends this script as soon as the job is requeued, perhaps before scontrol returns
    scontrol requeue "$job" || [ $? -gt 128 ] ||
        stop "$*, and Slurm does not requeue this job; the same sbatch command resumes from the newest checkpoint"
    say "$*; requeued"
    forget_this_start
    exit "$code"
}

# count_at_step FILE ARGUMENTS...: sets `step` to that of the newest checkpoint, and `count` to the number of calls at
# this step
count_at_step() {
    local file=$1 last_step=none last_count=0
    shift
    step=$("${coeus[@]}" info --newest_step "$@") || step=
    if [ -L "$file" ]; then
        say "$file is a link, which is not followed; the count starts again"
    elif [ -f "$file" ]; then
        read -r last_step last_count <"$file"
    fi
    # a folder that cannot be listed now: the run has probably not come further
    if ! [[ $step =~ ^[0-9]+$ ]]; then step=$last_step; fi
    [[ $step =~ ^[0-9]+$ ]] || step=0
    count=1
    # shell arithmetic evaluates text, and others may write to this folder, so only digits are accepted
    if [ "$step" = "$last_step" ] && [[ $last_count =~ ^[1-9][0-9]{0,5}$ ]]; then count=$((last_count + 1)); fi
    write_new "$file.part" "$step $count" && mv -fT "$file.part" "$file"
    [ "$(cat "$file" 2>/dev/null)" != "$step $count" ] || return 0
    rm -f "$file.part"
    # use the number of starts that Slurm counts
    count=$((${SLURM_RESTART_COUNT:-0} + 1))
    say "$PWD/$file cannot be written (is the disk full?); counting the starts of the job instead, $count so far"
}

# "exit code 139, SIGSEGV"
code_text() {
    local name
    name=$([ "$code" -gt 128 ] && kill -l $((code - 128)) 2>/dev/null) && name=", SIG$name"
    echo "exit code $code$name"
}

# A job that never gets past its checkpoint, or never saves one, would be requeued forever.
queue_again_after_stop() {
    local step count what="training was stopped before its last step"
    [ "$code" = 75 ] || what="training was told to end, but ended before it was saved ($(code_text))"
    count_at_step "$stops" "$@"
    [ $count -lt $most_stops ] ||
        stop "training was stopped $count times after the checkpoint of step $step, without a new checkpoint. Check" \
            "that checkpoint.enable is set, and that the job's time is longer than start-up and checkpoint.walltime_margin"
    queue_again "$what"
}

# A job that crashes again and again at the same point is stopped.
queue_again_after_crash() {
    local step count what
    what=$(code_text)
    count_at_step "$crashes" "$@"
    [ $count -lt $most_crashes ] ||
        stop "training crashed $count times ($what) after the checkpoint of step $step, without a new checkpoint. The" \
            "reason is above. When it is fixed, the same sbatch command resumes"
    queue_again "training crashed ($what), $count of $most_crashes times after the checkpoint of step $step"
}

train_and_requeue() {
    local ranks= state
    forget_this_start
    trap 'tell_to_end USR1' USR1 USR2
    trap 'tell_to_end TERM' TERM
    # each job of an array is a separate run: --job.dump_folder=outputs/run_%a
    set -- "${@//%a/${SLURM_ARRAY_TASK_ID-%a}}"
    # for ranks in a container without squeue
    COEUS_JOB_END=$(SLURM_TIME_FORMAT=%s squeue --noheader --jobs="$job" --format=%e)
    export COEUS_JOB_END
    say "start $((${SLURM_RESTART_COUNT:-0} + 1)) on $SLURM_JOB_NODELIST: ${launch[*]} ${coeus[*]} train $*"
    code=2
    "${coeus[@]}" info --build >/dev/null || stop "the program cannot be started on this node: ${coeus[*]}"
    run_ranks "$@"
    code=$?
    if [ $code = 0 ]; then
        rm -f "$crashes" "$stops"
        forget_this_start
        say "training is complete"
        return
    fi
    # After scancel or scontrol requeue, or if a node is down, Slurm ends the job and decides whether to requeue it. If
    # Slurm does not answer, it is busy or being restarted.
    for _ in {1..12}; do
        state=$(squeue --noheader --jobs="$job" --format=%T) && break
        state=RUNNING
        sleep 10
    done
    [ "$(cat "$COEUS_DONE_FILE" 2>/dev/null)" != lost_folder ] ||
        stop "another run now uses the folder of this one; see above"
    [ "$state" = RUNNING ] || stop "Slurm is ending this job (${state:-it no longer knows the job})"
    case $code in
        2) stop "an error in the deck, the command line, the data or the folder; see above" ;;
        4) stop "the loss or a gradient was not finite; see above. It would happen again" ;;
        75) queue_again_after_stop "$@" ;;
        *) if [ -e "$COEUS_STOP_FILE" ]; then queue_again_after_stop "$@"; else queue_again_after_crash "$@"; fi ;;
    esac
}
