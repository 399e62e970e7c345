// SPDX-License-Identifier: Apache-2.0
// `coeus sbatch`: the printed job scripts, messages about errors, and the newest step, for which a job script
// asks. (For job scripts on a cluster see tests/slurm.)
#include "coeus/comm/mpi.hpp"
#include "coeus/device/device.hpp"
#include "program/tiny_run.hpp"
#include "support/catch.hpp"
#include "support/paths.hpp"

#include <fstream>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

const std::string deck = paths::source() + "/inputs/base/llama3_1b.toml";

const Arguments can_run = {"--training.dataset_path=x.h5", "--checkpoint.enable"};

std::string printed(const Arguments& more) {
    // the job's program may have been built with CUDA
    const Outcome outcome =
        run_coeus(Arguments{"sbatch", deck} + more + can_run, 0, {{"COEUS", "/opt/coeus"}});
    INFO(outcome.output);
    CHECK(outcome.exit_code == 0);
    return outcome.output;
}

std::string refused_sbatch(const Arguments& arguments) {
    const Outcome outcome = run_coeus(Arguments{"sbatch"} + arguments);
    INFO(outcome.output);
    CHECK(outcome.exit_code == 2);
    CHECK(count_of(" - error - ", outcome.output) == 1);
    return outcome.output;
}

}  // namespace

TEST_CASE("a job script has the requested options, the machine's own, and needs no other file") {
    const TemporaryFolder folder;
    for (const char* machine : {"generic", "hyak", "local"}) {
        const std::string script =
            printed({"--machine", machine, "--nodes=4", "--gpus-per-node", "8", "--time", "1-12:00:00",
                     "--mem=1024T", "--account=lab", "--training.steps=70", "--job.description=it's"});
        CAPTURE(machine, script);
        for (const char* line :
             {"#SBATCH --nodes=4", "#SBATCH --gpus-per-node=8", "#SBATCH --ntasks-per-node=8",
              "#SBATCH --time=1-12:00:00", "#SBATCH --mem=1024T", "#SBATCH --account=lab",
              "#SBATCH --job-name=llama3_1b", "#SBATCH --requeue", "#SBATCH --open-mode=append"})
            CHECK(count_of(std::string("\n") + line + "\n", script) == 1);
        CHECK(count_of("\n#SBATCH --distribution=block:block\n", script) ==
              (machine == std::string("local") ? 0 : 1));
        CHECK_THAT(script, Contains("# Mesh: 32 ranks: dp_shard 32") && Contains("--signal=B:USR1@"));
        // the effective deck, with paths that mean the same from every folder
        const std::string here = fs::current_path().string();
        CHECK_THAT(script, Contains("\ncat >\"$deck\" <<'END_OF_DECK'\n") && Contains("\nEND_OF_DECK\n") &&
                               Contains("\nset -- \"$deck\" \"$@\"\n") && Contains("\nsteps = 70\n") &&
                               Contains("\ndescription = \"it's\"\n") && Contains("\ndevice = \"cuda\"\n") &&
                               Contains("\ndataset_path = [\"" + here + "/x.h5\"]\n") &&
                               Contains("\ndump_folder = \"" + here + "/outputs") &&
                               Contains("\n# Next: `sbatch THIS_FILE`; "));
        // Slurm's name for the way in which this MPI starts
        const bool open_mpi = MpiRuntime::library_version().starts_with("Open MPI");
        CHECK_THAT(script, Contains(open_mpi ? "srun --mpi=pmix" : "srun --mpi=pmi2") &&
                               !Contains(open_mpi ? "--mpi=pmi2" : "--mpi=pmix"));
        CHECK_THAT(script, !Contains("$jobscripts") && Contains("\ntrain_and_requeue \"$@\"\n"));
        // no #SBATCH line may follow a command, since sbatch ignores it there
        CHECK(script.rfind("\n#SBATCH") < script.find("\ndeck="));
        CHECK(count_of("\n#SBATCH --exclusive\n", script) == 0);
        write_file(folder / "job", script);
        CHECK(run_shell("bash -n " + (folder / "job").string()).exit_code == 0);
    }
}

TEST_CASE("a second job script evaluates the checkpoints of the run beside it") {
    const TemporaryFolder folder;
    const std::string here = fs::current_path().string();
    for (const char* machine : {"generic", "hyak", "local"}) {
        const std::string script = printed({"--machine", machine, "--nodes=1", "--gpus-per-node=2",
                                            "--evaluate=a.jsonl", "it's.jsonl", "--evaluate", "c.txt"});
        CAPTURE(machine, script);
        CHECK_THAT(script, Contains("\n#SBATCH --job-name=llama3_1b-evaluate\n") &&
                               Contains("\n\"${launch[@]}\" \"${coeus[@]}\" evaluate " + here + "/outputs") &&
                               Contains(" " + here + "/a.jsonl " + here + "/c.txt '" + here +
                                        "/it'\\''s.jsonl' --follow --device=cuda \"$@\"\n") &&
                               Contains("\nmkdir -p " + here + "/outputs"));
        CHECK_THAT(script,
                   Contains(" Options of coeus evaluate may follow the file's name.\n"
                            "# warning: a.jsonl does not exist here; it must exist where the job runs\n") &&
                       !Contains("Options of the deck"));
        CHECK_THAT(script, !Contains("train_and_requeue") && !Contains("$jobscripts") &&
                               !Contains("--signal=") && !Contains("END_OF_DECK") &&
                               !Contains("training saves and ends"));
        write_file(folder / "job", script);
        CHECK(run_shell("bash -n " + (folder / "job").string()).exit_code == 0);
    }
    const std::string on_cpus = printed({"--gpus-per-node=0", "--evaluate=a.jsonl"});
    CHECK_THAT(on_cpus, Contains("/a.jsonl --follow \"$@\"\n"));
    // what evaluate would refuse
    const std::string bad = folder / "bad.jsonl", tok = folder / "tok";
    write_file(folder / "t.txt", "the cat sat on the mat, the dog on the log\n");
    REQUIRE(run_coeus({"tokenizer", folder / "t.txt", "--vocab_size=264", "--output", tok}).exit_code == 0);
    write_file(bad, R"({"query": "x", "choices": ["a"], "gold": 1})");
    CHECK_THAT(refused_sbatch(
                   Arguments{deck, "--gpus-per-node=0", "--evaluate", bad, "--model.hf_assets_path=" + tok} +
                   can_run),
               Contains("bad.jsonl, line 1: gold = 1: must be from 0 to 0"));
    // with the tokenizer here: files that are elsewhere, and a training, which has none
    const std::string here_too = "--model.hf_assets_path=" + tok;
    CHECK_THAT(printed({"--gpus-per-node=0", "--evaluate=a.jsonl", here_too}),
               Contains("# warning: a.jsonl does not exist here"));
    CHECK_THAT(printed({"--gpus-per-node=0", here_too}), Contains("train_and_requeue"));
}

TEST_CASE("no name or argument breaks a job script") {
    const TemporaryFolder folder;
    const fs::path odd = folder / "my deck's.toml";
    fs::copy_file(folder.path() / deck, odd);
    const Outcome outcome = run_coeus(
        Arguments{"sbatch", odd.string(), "--machine=local", "--job.description=a\nfalse \"$HOME\""} +
        can_run);
    INFO(outcome.output);
    CHECK(outcome.exit_code == 0);
    CHECK_THAT(outcome.output, Contains("\n#SBATCH --job-name=my_deck_s\n") &&
                                   Contains("# Made by: coeus sbatch '" + folder.path().string() +
                                            "/my deck'\\''s.toml' --machine=local"));
    // the job trains the deck as it was
    write_file(folder / "job", outcome.output);
    const Outcome said =
        run_shell("cd " + folder.path().string() +
                  "; (sed -n '/^deck=/,/^set --/p' job; echo 'cat \"$1\"; printf \"[%s]\" \"$@\"') | "
                  "SLURM_JOB_ID=7 bash -s -- more");
    CHECK_THAT(said.output, Contains("description = \"a\\nfalse \\\"$HOME\\\"\"") &&
                                Contains("[" + folder.path().string() + "/coeus-7.toml][more]"));
    CHECK(fs::exists(folder / "coeus-7.toml"));
}

TEST_CASE("no folder name of the program breaks a job script or is executed by it") {
    const TemporaryFolder folder;
    for (const char* program :
         {"/o'brien/coeus", "/$(touch evaluated)/coeus", "/`touch evaluated`/coeus", "/a}b {c/coeus"}) {
        CAPTURE(program);
        const Outcome outcome =
            run_coeus(Arguments{"sbatch", deck, "--machine=local", "--ntasks-per-node=1"} + can_run, 0,
                      {{"COEUS", program}});
        INFO(outcome.output);
        CHECK(outcome.exit_code == 0);
        write_file(folder / "job", outcome.output);
        const std::string shell = "cd " + folder.path().string() + "; bash -n job || exit 1; ";
        const std::string said = "(grep ' COEUS=' job; echo 'printf \"[%s]\" \"$COEUS\"') | ";
        CHECK(run_shell(shell + said + "env -u COEUS bash").output == "[" + std::string(program) + "]");
        // the job's own COEUS takes precedence
        CHECK(run_shell(shell + said + "COEUS=other bash").output == "[other]");
        CHECK_FALSE(fs::exists(folder / "evaluated"));
    }
}

namespace {

// jobscripts/train_and_requeue.sh; Slurm and the program are replaced by a few words of shell each.
struct ScriptAlone {
    TemporaryFolder folder;

    ScriptAlone() {
        program("squeue", "echo RUNNING");
        program("scontrol", "echo $*");
        program("coeus", "echo trained");
    }
    void program(const char* name, const std::string& script) {
        write_file(folder / name, "#!/bin/sh\n" + script + "\n");
        fs::permissions(folder / name, fs::perms::owner_all);
    }
    // The shell text with which it trains. There is always a checkpoint of step 5.
    void training(const std::string& script) {
        program("coeus", "case $1 in info) echo 5 ;; train) " + script + " ;; esac");
    }
    Outcome run(const std::string& environment = "") {
        write_file(folder / "job",
                   "export JOB_SCRIPT=$$ SLURM_JOB_ID=7 SLURM_JOB_NODELIST=n1 PATH=$PWD:$PATH " +
                       environment + "\ncoeus=(coeus)\n. " + paths::source() +
                       "/jobscripts/train_and_requeue.sh\ntrain_and_requeue deck.toml\n");
        return run_shell("cd " + folder.path().string() + " && bash job");
    }
};

}  // namespace

TEST_CASE("job script: a signal before there are ranks requeues the job without starting any") {
    ScriptAlone script;
    script.program("squeue", "[ -e asked ] || kill -USR1 $JOB_SCRIPT; touch asked; echo RUNNING");
    const Outcome outcome = script.run();
    INFO(outcome.output);
    CHECK(outcome.exit_code == 75);
    CHECK_THAT(outcome.output, Contains("requeue 7") &&
                                   Contains("training was stopped before its last step; requeued") &&
                                   !Contains("trained"));
    CHECK_FALSE(fs::exists(script.folder / "coeus-7.told"));
}

TEST_CASE("job script: after the signal to stop, no exit code of the ranks counts as a crash") {
    ScriptAlone script;
    script.training("trap : USR1; kill -USR1 $JOB_SCRIPT; until [ -e coeus-7.told ]; do :; done; exit 205");
    const Outcome outcome = script.run();
    INFO(outcome.output);
    CHECK(outcome.exit_code == 205);
    CHECK_THAT(outcome.output,
               Contains("told to end, but ended before it was saved (exit code 205); requeued") &&
                   !Contains("invalid signal"));
    CHECK(read_file(script.folder / "coeus-7.stops") == "5 1\n");
    script.training("exit 139");
    CHECK_THAT(script.run().output, Contains("training crashed (exit code 139, SIGSEGV), 1 of 3 times"));
}

TEST_CASE("job script: if mpirun ends before training did, training is not complete") {
    ScriptAlone script;
    script.program("mpirun", "exec \"$@\"");
    script.training("true");
    const char* launch = "launch=mpirun";
    const Outcome lost = script.run(launch);
    INFO(lost.output);
    CHECK(lost.exit_code == 1);
    CHECK_THAT(lost.output, Contains("mpirun ended before training did") &&
                                Contains("training crashed (exit code 1), 1 of 3 times") &&
                                !Contains("complete"));
    script.training("> $COEUS_DONE_FILE");
    CHECK_THAT(script.run(launch).output, Contains("training is complete"));
    CHECK_FALSE(fs::exists(script.folder / "coeus-7.done"));
    // a file that an earlier start left does not count
    write_file(script.folder / "coeus-7.done", "");
    script.training("true");
    CHECK_THAT(script.run(launch).output, !Contains("complete"));
    CHECK_THAT(script.run().output, Contains("training is complete"));
}

TEST_CASE("job script: repeated orderly ends without a new checkpoint finally stop the job") {
    ScriptAlone script;
    script.training("exit 75");
    for (int start = 1; start < 20; ++start) CHECK_THAT(script.run().output, Contains("requeued"));
    CHECK_THAT(script.run().output, Contains("stopped: training was stopped 20 times after the checkpoint of "
                                             "step 5, without a new checkpoint"));
    script.training("true");
    CHECK_THAT(script.run().output, Contains("training is complete"));
    CHECK_FALSE(fs::exists(script.folder / "coeus-7.stops"));
}

TEST_CASE("job script: counts must be digits, and no link is followed") {
    ScriptAlone script;
    script.training("exit 139");
    const fs::path count = script.folder / "coeus-7.crashes", foreign = script.folder / "foreign";
    for (const char* text : {"5 a[$(touch evaluated)]", "5 08", "5", "5 -3", "5 9999999", ""}) {
        CAPTURE(text);
        write_file(count, text);
        CHECK_THAT(script.run().output, Contains("crashed (exit code 139, SIGSEGV), 1 of 3 times"));
        CHECK(read_file(count) == "5 1\n");
    }
    CHECK_FALSE(fs::exists(script.folder / "evaluated"));
    CHECK_THAT(script.run().output, Contains("2 of 3 times"));

    write_file(foreign, "5 2\n");
    fs::remove(count);
    fs::create_symlink(foreign, count);
    CHECK_THAT(script.run().output,
               Contains("coeus-7.crashes is a link, which is not followed") && Contains("1 of 3 times"));
    CHECK_FALSE(fs::is_symlink(count));
    CHECK(read_file(count) == "5 1\n");
    // a link that exists before the script gets the signal
    script.training(
        "trap : USR1; ln -s foreign coeus-7.told; kill -USR1 $JOB_SCRIPT; while [ -L coeus-7.told ] || "
        "! [ -e coeus-7.told ]; do :; done; exit 75");
    CHECK_THAT(script.run().output, Contains("training was stopped before its last step; requeued"));
    CHECK(read_file(foreign) == "5 2\n");
}

TEST_CASE("job script: on a full disk Slurm's count of restarts is used, and also stops the job") {
    ScriptAlone script;
    script.training("exit 3");
    // files can be created, but not written to
    const auto start = [&](const std::string& restarts) {
        return script.run("SLURM_RESTART_COUNT=" + restarts + "; trap '' XFSZ; ulimit -f 0").output;
    };
    const fs::path count = script.folder / "coeus-7.crashes";
    for (const bool is_old : {false, true}) {
        CAPTURE(is_old);
        if (is_old) write_file(count, "5 1\n");
        CHECK_THAT(start("0"), Contains(count.string() + " cannot be written (is the disk full?)") &&
                                   Contains("1 of 3 times") && Contains("requeued"));
        CHECK_THAT(start("2"), Contains("stopped: training crashed 3 times (exit code 3)"));
        CHECK_FALSE(fs::exists(count.string() + ".part"));
        CHECK(fs::exists(count) == is_old);
    }
    // the count is still there when there is room again
    CHECK(read_file(count) == "5 1\n");
    CHECK_THAT(script.run().output, Contains("2 of 3 times"));
}

TEST_CASE("job script: messages for a Slurm that does not requeue, and for a missing program") {
    ScriptAlone script;
    script.training("exit 75");
    script.program("scontrol", "echo disabled; exit 1");
    CHECK_THAT(script.run().output,
               Contains("and Slurm does not requeue this job; the same sbatch command resumes"));
    // scontrol succeeded, and was killed together with the script before it answered
    script.program("scontrol", "kill -TERM $$");
    CHECK_THAT(script.run().output, Contains("training was stopped before its last step; requeued"));
    script.program("coeus", "exit 13");
    const Outcome outcome = script.run();
    CHECK(outcome.exit_code == 2);
    CHECK_THAT(outcome.output, Contains("stopped: the program cannot be started on this node: coeus"));
}

TEST_CASE("job script: each task of an array is its own job") {
    ScriptAlone script;
    script.program("squeue", "echo \"$*\" >> questions; echo RUNNING");
    script.training("exit 75");
    const Outcome outcome = script.run("SLURM_ARRAY_JOB_ID=5 SLURM_ARRAY_TASK_ID=2");
    INFO(outcome.output);
    CHECK_THAT(outcome.output, Contains("requeue 5_2") && Contains("job 5_2: "));
    CHECK(fs::exists(script.folder / "coeus-5_2.stops"));
    CHECK(count_of("--jobs=5_2 ", read_file(script.folder / "questions")) == 2);
}

TEST_CASE("job script: the program is a path, also with blanks, or a command") {
    const TemporaryFolder folder;
    fs::create_directory(folder / "od d");
    const std::string program = (folder / "od d/coeus").string();
    write_file(program, "#!/bin/sh\necho runs $*\n");
    fs::permissions(program, fs::perms::owner_all);
    for (const std::string machine : {"generic", "local"})
        for (const std::string& coeus : {program, std::string("env A=1 echo runs")}) {
            write_file(folder / "job", "COEUS='" + coeus + "'\n. " + paths::source() + "/jobscripts/" +
                                           machine + "/env.sh\n\"${coeus[@]}\" well\n");
            const Outcome outcome = run_shell("bash " + (folder / "job").string());
            INFO(outcome.output);
            CHECK_THAT(outcome.output, Contains("runs well"));
        }
}

TEST_CASE("an edit of the deck after its job script was made does not change the job") {
    const TemporaryFolder folder;
    const fs::path own = folder / "my.toml";
    write_file(own, "[training]\nsteps = 5\ndataset_path = \"tokens.h5\"\n[checkpoint]\nenable = true\n");
    const Outcome made = run_coeus({"sbatch", "my.toml", "--exclusive", "--gpus-per-node=0",
                                    "--ntasks-per-node=1", "--nodes=1", "--job.dump_folder=run_%a"},
                                   0, {}, folder.path());
    INFO(made.output);
    REQUIRE(made.exit_code == 0);
    CHECK(count_of("\n#SBATCH --exclusive\n", made.output) == 1);
    write_file(folder / "job", made.output);
    fs::remove(own);
    const Outcome job = run_shell("cd " + folder.path().string() +
                                  "; (sed -n '/^deck=/,/^set --/p' job; echo 'printf \"[%s]\" \"$@\"') | "
                                  "SLURM_JOB_ID=7 bash");
    const std::string at = folder.path().string();
    // %a is replaced by the job
    CHECK(job.output == "[" + at + "/coeus-7.toml][--job.dump_folder=" + at + "/run_%a]");
    const Outcome planned =
        run_coeus({"train", (folder / "coeus-7.toml").string(), "--dry_run", "--job.print_config"});
    INFO(planned.output);
    CHECK(planned.exit_code == 0);
    CHECK_THAT(planned.output,
               Contains("\nsteps = 5") && Contains("\ndataset_path = [\"" + at + "/tokens.h5\"]"));
}

TEST_CASE("paths with the number of a task of an array are absolute in a job script, like others") {
    const TemporaryFolder folder;
    fs::copy_file(folder.path() / deck, folder / "my.toml");
    const Outcome made = run_coeus({"sbatch", "my.toml", "--gpus-per-node=0", "--ntasks-per-node=1",
                                    "--checkpoint.enable", "--dataloader.dataset_path=a_%a.h5,b.h5",
                                    "--checkpoint.folder=saves_%a", "--model.tokenizer_path=../tok_%a"},
                                   0, {}, folder.path());
    INFO(made.output);
    REQUIRE(made.exit_code == 0);
    const std::string at = folder.path().string(), above = folder.path().parent_path().string();
    CHECK_THAT(made.output, Contains("\nset -- \"$deck\" '--model.tokenizer_path=" + above +
                                     "/tok_%a' '--training.dataset_path=" + at + "/a_%a.h5," + at +
                                     "/b.h5' '--checkpoint.folder=saves_%a' \"$@\"\n"));
}

TEST_CASE("a job of more ranks than there can be is refused") {
    CHECK_THAT(refused_sbatch(Arguments{deck, "--nodes=1048576", "--gpus-per-node=4096"} + can_run),
               Contains("--nodes=1048576 with --gpus-per-node=4096: the job would have 4,294,967,296 ranks; "
                        "there may be at most 16,777,216, so give at most --nodes=4096"));
    CHECK_THAT(
        refused_sbatch(Arguments{deck, "--nodes=65536", "--ntasks-per-node=65536"} + can_run),
        Contains("--nodes=65536 with --ntasks-per-node=65536: the job would have 4,294,967,296 ranks"));
}

TEST_CASE("a job without GPUs has none in its script") {
    const std::string script = printed({"--machine=hyak", "--ntasks-per-node=40", "--nodes=2"});
    CHECK_THAT(script, !Contains("\n#SBATCH --gpus") && !Contains("--device=cuda"));
    CHECK_THAT(script, Contains("# Mesh: 80 ranks") && Contains("\n#SBATCH --ntasks-per-node=40\n"));
    CHECK_THAT(printed({"--machine=hyak", "--gpus-per-node=a100:2"}),
               Contains("\n#SBATCH --gpus-per-node=a100:2\n") && Contains("\n#SBATCH --ntasks-per-node=2\n"));
}

TEST_CASE("errors of a job are reported before there is a script") {
    CHECK_THAT(refused_sbatch({}), Contains("needs a deck"));
    CHECK_THAT(refused_sbatch({deck, "--machine=hyac"}),
               Contains("generic, hyak, local") && Contains("mean hyak"));
    CHECK_THAT(refused_sbatch({deck, "--machine=hyak", "--node=4"}), Contains("did you mean --nodes"));
    CHECK_THAT(refused_sbatch({deck, "--machine=hyak", "--nodes=0"}),
               Contains("--nodes") && Contains("at least 1"));
    CHECK_THAT(refused_sbatch({deck, "--machine=hyak", "--time=a day"}),
               Contains("--time") && Contains("24:00:00"));
    for (const char* absurd : {"99999999999999", "366-00"})
        CHECK_THAT(refused_sbatch({deck, "--machine=hyak", "--time", absurd}),
                   Contains(fmt::format("at most 365-00, but is \"{}\"", absurd)));
    for (const char* absurd : {"-1", "1XB", "1025T", "999999999999999"})
        CHECK_THAT(refused_sbatch({deck, "--machine=hyak", fmt::format("--mem={}", absurd)}),
                   Contains("--mem must be a number of MiB, or a number with K, M, G or T, at most 1024T, "
                            "such as 128G") &&
                       Contains(fmt::format("but is \"{}\"", absurd)));
    CHECK_THAT(refused_sbatch({deck, "--machine=hyak", "--account=my lab"}), Contains("one word"));
    CHECK_THAT(refused_sbatch({deck, "--machine=hyak", "--gpus-per-node=many"}), Contains("a100:4"));
    CHECK_THAT(refused_sbatch({deck, "--machine=hyak", "--gpus-per-node=4", "--ntasks-per-node=8"}),
               Contains("remove --ntasks-per-node"));
    CHECK_THAT(refused_sbatch({deck, "--machine=local", "--device=cuda"}), Contains("give --gpus-per-node"));
    CHECK_THAT(refused_sbatch({deck, "--machine=hyak", "--gpus-per-node=4", "--device=cpu"}),
               Contains("device = \"cpu\": the job has GPUs"));
    CHECK_THAT(refused_sbatch({deck, "--machine=hyak", "--time=4"}),
               Contains("told to save 300 seconds before") && Contains("nearest valid value is 11"));
    CHECK_THAT(refused_sbatch({deck, "--machine=hyak", "--gpus-per-node=4", "--nodes=4",
                               "--parallelism.tensor_parallel_degree=3"}),
               Contains("tensor_parallel_degree") && Contains("nearest valid"));
    // options that a run would refuse, and options that a requeued job needs
    const Arguments job = {deck, "--machine=hyak", "--gpus-per-node=0", "--ntasks-per-node=4"};
    CHECK_THAT(refused_sbatch(job + Arguments{"--checkpoint.enable"}), Contains("training.dataset_path"));
    CHECK_THAT(refused_sbatch(job + can_run + Arguments{"--loss.loss_fn=MSELoss"}),
               Contains("loss.loss_fn = ") && Contains("a language model has none"));
    CHECK_THAT(refused_sbatch(job + Arguments{can_run[0]}),
               Contains("checkpoint.enable = false: ") && Contains("set checkpoint.enable = true"));
    CHECK_THAT(refused_sbatch(job + can_run + Arguments{"--checkpoint.load_only"}),
               Contains("checkpoint.load_only = true: ") && Contains("would start from scratch each time"));
    if (!built_with_cuda())
        CHECK_THAT(refused_sbatch(Arguments{deck, "--machine=hyak", "--gpus-per-node=4"} + can_run),
                   Contains("this program was built without CUDA") && Contains("COEUS=/path/to/coeus"));
    CHECK_THAT(refused_sbatch({"absent.toml", "--machine=hyak"}), Contains("absent.toml"));
    CHECK_THAT(refused_sbatch({deck, deck, "--machine=hyak"}), Contains("one deck"));
}

TEST_CASE("a job script can ask for the newest step of a run") {
    const TemporaryFolder folder;
    write_token_file(folder / "tokens.h5", {.tokens = learnable_tokens(80 * 17)});
    Arguments run =
        tiny_run(folder / "run", folder / "tokens.h5", {"--checkpoint.enable", "--checkpoint.interval=4"});
    Arguments question = run;
    question[0] = "info";
    question.emplace_back("--newest_step");
    CHECK(run_coeus(question).output == "0\n");
    CHECK(run_coeus(run).exit_code == 0);
    CHECK(run_coeus(question).output == "6\n");
    CHECK_THAT(run_coeus({"info", deck, "--training.steps=3"}).output, Contains("--newest_step"));
}

TEST_CASE("a job whose plan exceeds its devices is refused with a remedy") {
    CHECK_THAT(printed({"--machine=generic", "--nodes=1", "--gpus-per-node=8", "--gpu=h100"}),
               Contains("# Planned for an NVIDIA H100 with 79.6 GiB"));
    const Arguments eight = Arguments{deck, "--machine=generic", "--nodes=1", "--gpus-per-node=8"} + can_run;
    const std::string text = refused_sbatch(eight + Arguments{"--memory=6GiB"});
    CHECK_THAT(text, Contains("a rank does not fit into the memory of a GPU: a run would be refused. ") &&
                         Contains("The cheapest change that fits: "));
    CHECK_THAT(refused_sbatch(eight + Arguments{"--gpu=h1000"}), Contains("did you mean h100?"));
    CHECK_THAT(
        refused_sbatch(Arguments{deck, "--machine=generic", "--nodes=1", "--gpus-per-node=0", "--gpu=h100"} +
                       can_run),
        Contains("--gpu=h100: the job has no GPUs"));
}

TEST_CASE("job script: a run that has lost its folder is not queued again") {
    ScriptAlone script;
    script.training("echo lost_folder > \"$COEUS_DONE_FILE\"; exit 3");
    const Outcome outcome = script.run();
    INFO(outcome.output);
    CHECK_THAT(outcome.output,
               Contains("another run now uses the folder of this one; see above") && !Contains("requeue 7"));
    CHECK(outcome.exit_code != 0);
}
