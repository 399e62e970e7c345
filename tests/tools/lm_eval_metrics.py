#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs lm-evaluation-harness on a Hugging Face folder and prints its metrics as JSON, by task.

    lm_eval_metrics.py FOLDER CHOICES.jsonl STORIES.jsonl DOCUMENTS.jsonl

CHOICES has query, choices and gold; STORIES context and continuation; DOCUMENTS text. Nothing is downloaded.
"""
import contextlib
import json
import os
import sys
import tempfile


def tasks_of(choices, stories, documents):
    def task(name, file, output_type, **more):
        return {"task": name, "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": file}},
                "test_split": "test", "output_type": output_type, **more}
    return [task("choices", choices, "multiple_choice", doc_to_text="{{query}}", doc_to_choice="choices",
                 doc_to_target="gold", metric_list=[{"metric": "acc"}, {"metric": "acc_norm"}]),
            task("stories", stories, "loglikelihood", doc_to_text="{{context}}", doc_to_target="{{continuation}}",
                 target_delimiter="", metric_list=[{"metric": "perplexity"}, {"metric": "acc"}]),
            task("documents", documents, "loglikelihood_rolling", doc_to_text="", doc_to_target="{{text}}",
                 metric_list=[{"metric": "word_perplexity"}, {"metric": "byte_perplexity"},
                              {"metric": "bits_per_byte"}])]


def main(folder, *files):
    with tempfile.TemporaryDirectory() as cache, contextlib.redirect_stdout(sys.stderr):
        os.environ.update(HF_HOME=cache, HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", OMP_NUM_THREADS="1")
        import lm_eval
        from lm_eval.models.huggingface import HFLM
        model = HFLM(pretrained=folder, dtype="float32", device="cpu", batch_size=1, add_bos_token=False)
        results = lm_eval.simple_evaluate(model=model, tasks=tasks_of(*files), bootstrap_iters=0)["results"]
    print(json.dumps({task: {name.removesuffix(",none"): value for name, value in metrics.items()
                             if name.endswith(",none") and not name.endswith("_stderr,none")}
                      for task, metrics in results.items()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
