#!/usr/bin/env python3
"""A tiny random Llama of transformers, trained for a target of llama.cpp's and written as GGUF: what the packages `gguf`
and `llama_cpp` make of the file, beside training's own numbers. Needs transformers, gguf, llama-cpp-python. Exit code 1 where a code differs, or where the
median difference of a token's logits is more than the order of float sums explains.

    llama_cpp_agreement.py [--targets q4_0 ...] [--steps 5] [--tokens 1024] [--length 64] [--kind llama|qwen2|qwen3] [--folder F]
"""
import argparse
import os
import pathlib
import sys
import tempfile

import numpy as np
import torch
import transformers

import steelyard.torch

VOCABULARY, WIDTH, HIDDEN, LAYERS, HEADS, OF_KEYS, CONTEXT = 512, 128, 352, 3, 4, 2, 256


def model_of(kind):
    common = dict(vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=HIDDEN, num_hidden_layers=LAYERS,
                  num_attention_heads=HEADS, num_key_value_heads=OF_KEYS, max_position_embeddings=CONTEXT,
                  rms_norm_eps=1e-5, initializer_range=0.1, bos_token_id=1, eos_token_id=2)
    kinds = {"llama": ("LlamaConfig", "LlamaForCausalLM", {"tie_word_embeddings": True}),
             "llama3": ("LlamaConfig", "LlamaForCausalLM",
                        {"tie_word_embeddings": False, "attention_bias": True, "mlp_bias": True, "rope_theta": 100.0,
                         "rope_scaling": {"rope_type": "llama3", "rope_theta": 100.0, "factor": 8.0, "low_freq_factor": 1.0,
                                          "high_freq_factor": 4.0, "original_max_position_embeddings": 64}}),
             "mistral": ("MistralConfig", "MistralForCausalLM",
                         {"tie_word_embeddings": False, "head_dim": 48, "sliding_window": None}),
             "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", {"tie_word_embeddings": False}),
             "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", {"tie_word_embeddings": True, "head_dim": WIDTH // HEADS})}
    config, model, more = kinds[kind]
    made = getattr(transformers, model)(getattr(transformers, config)(**common, **more))
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return made.float().eval()


def write_source(model, kind, path):
    """A float32 GGUF file of the model, by the package gguf, with a vocabulary of bytes and nonsense."""
    import gguf
    out = gguf.GGUFWriter(path, kind)
    out.add_name("tiny")
    out.add_context_length(CONTEXT)
    out.add_embedding_length(WIDTH)
    out.add_block_count(LAYERS)
    out.add_feed_forward_length(HIDDEN)
    out.add_head_count(HEADS)
    out.add_head_count_kv(OF_KEYS)
    out.add_rope_dimension_count(WIDTH // HEADS)
    theta = getattr(model.config, "rope_theta", None) or model.config.rope_parameters["rope_theta"]
    out.add_rope_freq_base(theta)
    out.add_layer_norm_rms_eps(model.config.rms_norm_eps)
    out.add_vocab_size(VOCABULARY)
    out.add_file_type(0)
    if kind == "qwen3":
        out.add_key_length(WIDTH // HEADS)
        out.add_value_length(WIDTH // HEADS)
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
    tokens += [f"\u2581t{i}" for i in range(VOCABULARY - len(tokens))]
    kinds = [2, 3, 3] + [6] * 256 + [1] * (VOCABULARY - 259)
    out.add_tokenizer_model("llama")
    out.add_token_list(tokens)
    out.add_token_scores([0.0] * VOCABULARY)
    out.add_token_types(kinds)
    out.add_bos_token_id(1)
    out.add_eos_token_id(2)
    names = gguf.get_tensor_name_map({"llama": gguf.MODEL_ARCH.LLAMA, "qwen2": gguf.MODEL_ARCH.QWEN2,
                                      "qwen3": gguf.MODEL_ARCH.QWEN3}[kind], LAYERS)
    for name, parameter in model.named_parameters():
        values = parameter.detach().numpy().astype(np.float32)
        heads = {"q_proj": HEADS, "k_proj": OF_KEYS}.get(name.split(".")[-2], 0) if kind == "llama" else 0
        if heads:  # as llama.cpp's converter orders them
            values = values.reshape(heads, 2, values.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(values.shape)
        out.add_tensor(names.get_name(name, try_suffixes=(".weight", ".bias")), np.ascontiguousarray(values))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def train(model, steps):
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    text = torch.arange(4 * 64).reshape(4, 64) * 7 % VOCABULARY
    losses = []
    for _ in range(steps):
        loss = model(input_ids=text, labels=text).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    model.eval()
    return losses


def differing_codes(model, path):
    """(codes that differ from training's, codes) by the reader and the values of the package gguf."""
    import gguf
    reader = gguf.GGUFReader(path)
    from steelyard.torch.gguf import _Source
    source = _Source(model, path)
    differ = total = 0
    layers = {name: m for name, m in model.named_modules(remove_duplicate=False) if hasattr(m, "weight_quantizer")}
    for tensor in reader.tensors:
        name = source.names[tensor.name]
        layer = layers.get(name[:-len(".weight")])
        if layer is None or not name.endswith(".weight"):
            continue
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        trained = source.to_file(tensor.name, layer.weight_quantizer(layer.weight).detach()).numpy()
        differ += int((values.reshape(trained.shape) != trained).sum())
        total += trained.size
    return differ, total


def logits_of_llama_cpp(path, ids):
    import llama_cpp
    llama = llama_cpp.Llama(str(path), n_ctx=CONTEXT, n_batch=CONTEXT, logits_all=True, verbose=False, n_threads=2,
                            type_k=llama_cpp.GGML_TYPE_F32, type_v=llama_cpp.GGML_TYPE_F32, flash_attn=False)
    rows = []
    for row in ids:
        llama.reset()
        llama.eval(row.tolist())
        rows.append(np.array(llama.scores[:len(row)], np.float32))
    return np.stack(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--targets", nargs="+", default=["q4_0", "q8_0", "iq4_nl", "mxfp4"])
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--kind", default="llama")
    parser.add_argument("--folder")
    args = parser.parse_args()
    folder = pathlib.Path(args.folder or tempfile.mkdtemp())
    torch.manual_seed(1)
    ids = torch.randint(3, VOCABULARY, (args.tokens // args.length, args.length))
    faults = 0
    print("model, target: codes that differ; a token's largest difference of logits: median, largest; tokens within 1e-4; same "
          "top token; largest logit; how far training moved the logits; loss")
    for target in ["float", *args.targets]:
        torch.manual_seed(0)
        model = model_of(args.kind)
        source, out = folder / f"{args.kind}.gguf", folder / f"{args.kind}-{target}.gguf"
        write_source(model, args.kind, source)
        with torch.no_grad():
            plain = model(input_ids=ids).logits.numpy()
        if target != "float":
            steelyard.torch.quantize_(model, {"version": 1, "name": target, "export": {"target": f"gguf-{target}"}})
            losses = train(model, args.steps)
            steelyard.torch.export_gguf(model, source, out)
            differ, total = differing_codes(model, out)
        else:
            out, differ, total, losses = source, 0, 0, []
        with torch.no_grad():
            ours = model(input_ids=ids).logits.numpy()
        theirs = logits_of_llama_cpp(out, ids)
        off = np.abs(ours - theirs).max(-1)
        same = 100 * float((ours.argmax(-1) == theirs.argmax(-1)).mean())
        print(f"{args.kind}, {target}: {differ} of {total}; {np.median(off):.1e}, {off.max():.1e}; {100 * (off < 1e-4).mean():.1f} % of "
              f"{off.size}; {same:.2f} %; {np.abs(theirs).max():.2f}; {np.abs(plain - ours).max():.2f}; {losses[:1]} {losses[-1:]}",
              flush=True)
        faults += differ > 0 or np.median(off) > 1e-4
    return faults


if __name__ == "__main__":
    sys.stdout.flush()
    code = int(main() > 0)
    sys.stdout.flush()
    os._exit(code)
