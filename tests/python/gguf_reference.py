"""GGUF files and some of ggml's blocks by hand, in NumPy, from the description of the format; and a small Llama whose
parameters have transformers' names."""
import struct

import numpy as np

from torch_case import nn, torch

TYPES = {"f32": (0, 1, 4), "f16": (1, 1, 2), "q4_0": (2, 32, 18), "q8_0": (8, 32, 34), "iq4_nl": (20, 32, 18),
         "mxfp4": (39, 32, 17)}
IQ4_NL = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)
MXFP4 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float32)


def text(words):
    words = words.encode()
    return struct.pack("<Q", len(words)) + words


def entry(key, value):
    if isinstance(value, str):
        return text(key) + struct.pack("<I", 8) + text(value)
    if isinstance(value, list):
        return text(key) + struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))
    if isinstance(value, float):
        return text(key) + struct.pack("<If", 6, value)
    return text(key) + struct.pack("<II", 4, value)


def file_of(metadata, tensors):
    """The bytes of a file; tensors: {name: (type, shape, bytes)}."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    head += b"".join(entry(key, value) for key, value in metadata.items())
    data = b""
    for name, (kind, shape, bytes_) in tensors.items():
        head += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), TYPES[kind][0], len(data))
        data += bytes_ + bytes(-len(bytes_) % 32)
    return head + bytes(-len(head) % 32) + data


def tensors_of(bytes_):
    """{name: (type, shape, bytes)} of a file whose metadata are those of entry(), and the metadata's bytes."""
    count, entries = struct.unpack_from("<QQ", bytes_, 8)
    at = 24

    def take(form):
        nonlocal at
        values = struct.unpack_from("<" + form, bytes_, at)
        at += struct.calcsize("<" + form)
        return values if len(values) > 1 else values[0]

    def take_text():
        nonlocal at
        length = take("Q")
        at += length
        return bytes_[at - length:at].decode()

    metadata = {}
    for _ in range(entries):
        key, kind = take_text(), take("I")
        if kind == 9:
            _, length = take("I"), take("Q")
            metadata[key] = [take_text() for _ in range(length)]
        else:
            metadata[key] = take_text() if kind == 8 else take("f" if kind == 6 else "I")
    infos = {}
    for _ in range(count):
        name, rank = take_text(), take("I")
        shape = [take("Q") for _ in range(rank)][::-1]
        kind, offset = take("I"), take("Q")
        infos[name] = ({number: word for word, (number, _, _) in TYPES.items()}[kind], shape, offset)
    begin = at + -at % 32
    found = {}
    for name, (kind, shape, offset) in infos.items():
        _, elements, size = TYPES[kind]
        length = int(np.prod(shape)) // elements * size
        found[name] = (kind, shape, bytes_[begin + offset:begin + offset + length])
    return found, metadata


def codes_and_scales(kind, blocks):
    """Codes [blocks, 32] and scales [blocks] of the bytes of blocks, whose products are the values."""
    size = TYPES[kind][2]
    blocks = np.frombuffer(blocks, np.uint8).reshape(-1, size)
    if kind == "mxfp4":
        scales, codes = np.exp2(blocks[:, 0].astype(np.float32) - 128), blocks[:, 1:]
    else:
        scales, codes = blocks[:, :2].copy().view(np.float16)[:, 0].astype(np.float32), blocks[:, 2:]
    if kind == "q8_0":
        return codes.view(np.int8).astype(np.float32), scales
    nibbles = np.concatenate([codes & 15, codes >> 4], axis=1)
    if kind == "q4_0":
        return nibbles.astype(np.float32) - 8, scales
    return (MXFP4 if kind == "mxfp4" else IQ4_NL)[nibbles], scales


def values_of(kind, shape, bytes_):
    if kind in ("f32", "f16"):
        return np.frombuffer(bytes_, np.float32 if kind == "f32" else np.float16).astype(np.float32).reshape(shape)
    codes, scales = codes_and_scales(kind, bytes_)
    return (codes * scales[:, None]).reshape(shape)


def input_blocks(x):
    """Codes [blocks, 32] and scales [blocks] of inputs, as x86 has them."""
    x = np.ascontiguousarray(x, np.float32).reshape(-1, 32)
    largest = np.abs(x).max(axis=1)
    factor = np.where(largest > 0, np.float32(127) / np.where(largest > 0, largest, 1), np.float32(0)).astype(np.float32)
    return np.rint(x * factor[:, None]), (largest / np.float32(127)).astype(np.float16).astype(np.float32)


class Attention(nn.Module):
    def __init__(self, width, heads, of_keys):
        super().__init__()
        self.heads, self.of_keys, self.size = heads, of_keys, width // heads
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, of_keys * self.size, bias=False)
        self.v_proj = nn.Linear(width, of_keys * self.size, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)

    def forward(self, x):
        n, t, _ = x.shape
        q = self.q_proj(x).view(n, t, self.heads, self.size).transpose(1, 2)
        k = self.k_proj(x).view(n, t, self.of_keys, self.size).transpose(1, 2).repeat_interleave(self.heads // self.of_keys, 1)
        v = self.v_proj(x).view(n, t, self.of_keys, self.size).transpose(1, 2).repeat_interleave(self.heads // self.of_keys, 1)
        later = torch.ones(t, t, dtype=torch.bool).triu(1)
        weights = (q @ k.transpose(2, 3) / self.size ** 0.5).masked_fill(later, float("-inf")).softmax(-1)
        return self.o_proj((weights @ v).transpose(1, 2).reshape(n, t, -1))


class Mlp(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.gate_proj = nn.Linear(width, hidden, bias=False)
        self.up_proj = nn.Linear(width, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(1 + 0.1 * torch.randn(width))

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)


class Block(nn.Module):
    def __init__(self, width, heads, of_keys, hidden):
        super().__init__()
        self.self_attn = Attention(width, heads, of_keys)
        self.mlp = Mlp(width, hidden)
        self.input_layernorm, self.post_attention_layernorm = Norm(width), Norm(width)

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    """Token ids [N, T] to logits [N, T, 64]; without rotation, which has no parameters."""

    def __init__(self, tied=True):
        super().__init__()
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(64, 64)
        self.model.layers = nn.ModuleList([Block(64, 4, 2, 96) for _ in range(2)])
        self.model.norm = Norm(64)
        self.lm_head = nn.Linear(64, 64, bias=False)
        if tied:
            self.lm_head.weight = self.model.embed_tokens.weight

    def forward(self, ids):
        x = self.model.embed_tokens(ids)
        for layer in self.model.layers:
            x = layer(x)
        return self.lm_head(self.model.norm(x))


NAMES = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
         "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


def tensor_name(parameter):
    if parameter.startswith("model.layers."):
        _, _, layer, *rest, kind = parameter.split(".")
        return f"blk.{layer}.{NAMES['.'.join(rest)]}.{kind}"
    return {"model.embed_tokens": "token_embd", "model.norm": "output_norm",
            "lm_head": "output"}[parameter[:-7]] + ".weight"


def reordered(parameter, values):
    """Rows of q and k as llama.cpp has them: row j of a head's first half is followed by row j of its second half."""
    heads = {"q_proj": 4, "k_proj": 2}.get(parameter.split(".")[-2], 0)
    if not heads:
        return values
    size = values.shape[0] // heads
    order = [h * size + j + half * size // 2 for h in range(heads) for j in range(size // 2) for half in range(2)]
    return values[order]


METADATA = {"general.architecture": "llama", "general.name": "tiny", "llama.attention.head_count": 4,
            "llama.attention.head_count_kv": 2, "llama.attention.layer_norm_rms_epsilon": 1e-5, "general.file_type": 0,
            "tokenizer.ggml.tokens": ["<s>", "caf\u00e9", ""]}


def float_file(model, kind="f32", metadata=METADATA):
    tensors = {}
    for name, parameter in model.named_parameters():
        values = reordered(name, parameter.detach().numpy())
        of = kind if values.ndim > 1 else "f32"
        tensors[tensor_name(name)] = (of, list(values.shape), values.astype(np.float32 if of == "f32" else np.float16).tobytes())
    return file_of(metadata, tensors)
