#!/usr/bin/env python3
"""A training step of a Llama of SmolLM2's sizes: transformers on torch, and the engine, in float and with Q4_0 blocks.

usage: benchmarks/language_step.py PROGRAM [--layers 30] [--length 128] [--batch 2] [--rounds 5] [--steps 2] [--threads 2]
                                   [--json FILE]

PROGRAM is the built training_step_benchmark. Every row is a process of its own; they take their steps in turn, a few each,
so that a busy machine slows all, and medians are compared. A step is forward, the mean cross-entropy of all tokens,
backward and SGD with momentum, on random tokens that stay the same, from random weights. Torch's row is the faster of its
two attentions that run on CPUs, eager and sdpa. Needs transformers and gguf. STEELYARD_INSTRUCTIONS=x86-64-v3 with
ONEDNN_MAX_CPU_ISA=AVX2 and MKL_ENABLE_INSTRUCTIONS=AVX2 holds all of them to AVX2.
"""
import argparse
import datetime
import json
import pathlib
import resource
import sys
import tempfile
import time

from machine import cpu_name
from steppers import run_rounds, start

SMOLLM2 = {"hidden_size": 576, "intermediate_size": 1536, "num_attention_heads": 9, "num_key_value_heads": 3,
           "vocab_size": 49152, "tie_word_embeddings": True, "rope_theta": 1e5, "max_position_embeddings": 2048}


def model_of(layers, attention="sdpa"):
    import torch
    import transformers
    torch.manual_seed(1)
    config = transformers.LlamaConfig(**SMOLLM2, num_hidden_layers=layers, attn_implementation=attention, use_cache=False)
    return transformers.LlamaForCausalLM(config)


def write_gguf(layers, path):
    """The file's rows stay in torch's order, which costs as much time as any other."""
    import gguf
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(layers)
    writer.add_context_length(SMOLLM2["max_position_embeddings"])
    writer.add_embedding_length(SMOLLM2["hidden_size"])
    writer.add_feed_forward_length(SMOLLM2["intermediate_size"])
    writer.add_head_count(SMOLLM2["num_attention_heads"])
    writer.add_head_count_kv(SMOLLM2["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(SMOLLM2["rope_theta"])
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, layers)
    for name, parameter in model_of(layers).named_parameters():
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight",)), parameter.detach().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def serve_torch(options):
    """Takes its steps whenever a line comes (steppers.py)."""
    import torch
    torch.set_num_threads(options.threads)
    model = model_of(options.layers, options.torch).train()
    rows = torch.randint(0, SMOLLM2["vocab_size"], (options.batch, options.length + 1))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9, weight_decay=5e-4, fused=True)

    def step():
        optimizer.zero_grad(set_to_none=True)
        logits = model(input_ids=rows[:, :-1]).logits
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten()).backward()
        optimizer.step()

    def timed():
        begin = time.perf_counter()
        step()
        return (time.perf_counter() - begin) * 1e3

    step()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    print(json.dumps({"torch": torch.__version__, "peak_bytes": peak}), flush=True)
    for _ in sys.stdin:
        print(json.dumps([timed() for _ in range(options.steps)]), flush=True)


def measure(options):
    sizes = ["--threads", options.threads, "--steps", options.steps, "--length", options.length, "--batch", options.batch]
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/model.gguf"
        write_gguf(options.layers, file)
        own = [__file__, options.program, "--layers", options.layers, *sizes]
        rows = {f"torch {a}": [sys.executable, *own, "--torch", a] for a in ("eager", "sdpa")}
        for mode in ("float", "q4_0"):
            rows[f"steelyard {mode}"] = [options.program, "language", mode, "--gguf", file, *sizes]
        steppers, failed = start({name: [str(word) for word in row] for name, row in rows.items()})
    infos = {name: s.info for name, s in steppers.items()}
    timed = dict(steppers)
    failed += run_rounds(steppers, options.rounds)
    ms = {name: s.median for name, s in timed.items() if name not in failed}
    fastest = min((t, name) for name, t in ms.items() if name.startswith("torch "))
    ours, theirs = infos["steelyard float"]["peak_bytes"], infos[fastest[1]]["peak_bytes"]
    ratios = {"tokens a second: steelyard / torch": fastest[0] / ms["steelyard float"],
              "q4_0 / float": ms["steelyard q4_0"] / ms["steelyard float"],
              "peak memory: steelyard / torch": ours / theirs,
              "peak memory: q4_0 / float": infos["steelyard q4_0"]["peak_bytes"] / ours}
    return {"layers": options.layers, "length": options.length, "batch": options.batch, "median_ms": ms, "failed": failed,
            "peak_bytes": {n: i["peak_bytes"] for n, i in infos.items()}, "ratios": ratios,
            "torch": infos[fastest[1]]["torch"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--torch", choices=("eager", "sdpa"), help="is torch's row")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    if options.torch:
        return serve_torch(options)
    result = {"date": datetime.date.today().isoformat(), "cpu": cpu_name(), "threads": options.threads,
              "rows": [measure(options)]}
    print(json.dumps(result, indent=1))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
