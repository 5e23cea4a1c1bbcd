#include "steelyard/framework/files/sha256.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <numeric>
#include <system_error>
#include <thread>

#include "steelyard/framework/files/files.h"

#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace steelyard {
namespace {

// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
alignas(16) constexpr std::uint32_t kConstants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

std::uint32_t big_endian(const unsigned char* bytes) {
  return std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 |
         std::uint32_t{bytes[2]} << 8 | std::uint32_t{bytes[3]};
}

// FIPS 180-4, 6.2.2; its letters.
void add_blocks(std::uint32_t* state, const unsigned char* bytes, std::size_t blocks) {
  for (; blocks > 0; --blocks, bytes += 64) {
    std::uint32_t w[64];
    for (int t = 0; t < 16; ++t) w[t] = big_endian(bytes + 4 * t);
    for (int t = 16; t < 64; ++t) {
      const std::uint32_t s0 = std::rotr(w[t - 15], 7) ^ std::rotr(w[t - 15], 18) ^ w[t - 15] >> 3;
      const std::uint32_t s1 = std::rotr(w[t - 2], 17) ^ std::rotr(w[t - 2], 19) ^ w[t - 2] >> 10;
      w[t] = w[t - 16] + s0 + w[t - 7] + s1;
    }
    std::uint32_t v[8];  // a to h; instead of moving on, each takes the place before it
    std::copy_n(state, 8, v);
    for (unsigned t = 0; t < 64; t += 8) {
      for (unsigned i = 0; i < 8; ++i) {
        const auto at = [&v, i](unsigned place) -> std::uint32_t& { return v[(place - i) % 8]; };
        const std::uint32_t a = at(0), b = at(1), c = at(2), e = at(4);
        const std::uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
        const std::uint32_t choice = (e & at(5)) ^ (~e & at(6));
        const std::uint32_t first = at(7) + s1 + choice + kConstants[t + i] + w[t + i];
        const std::uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
        at(3) += first;
        at(7) = first + s0 + ((a & b) ^ (a & c) ^ (b & c));
      }
    }
    for (int i = 0; i < 8; ++i) state[i] += v[i];
  }
}

#ifdef __x86_64__
// By the processor's own instructions, of which sha256rnds2 makes two rounds: five times as fast.
// They wait for each other: blocks of two messages take little longer than those of one.
template <std::size_t kMessages>
__attribute__((target("sha,sse4.1"))) void add_blocks_by_instructions(
    std::uint32_t* const* states, const unsigned char* const* bytes, std::size_t blocks) {
  // They take the state as a, b, e, f and c, d, g, h, the last one lowest.
  const auto vector = [](std::uint32_t s3, std::uint32_t s2, std::uint32_t s1, std::uint32_t s0) {
    return _mm_set_epi32(static_cast<int>(s3), static_cast<int>(s2), static_cast<int>(s1),
                         static_cast<int>(s0));
  };
  __m128i abef[kMessages], cdgh[kMessages];
  for (std::size_t m = 0; m < kMessages; ++m) {
    const std::uint32_t* const s = states[m];
    abef[m] = vector(s[0], s[1], s[4], s[5]);
    cdgh[m] = vector(s[2], s[3], s[6], s[7]);
  }
  const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  for (std::size_t block = 0; block < blocks; ++block) {
    __m128i abef_before[kMessages], cdgh_before[kMessages];
    __m128i w[kMessages][4];  // the last 16 words, those of step t in w[t % 4]
    std::copy_n(abef, kMessages, abef_before);
    std::copy_n(cdgh, kMessages, cdgh_before);
#pragma GCC unroll 16
    for (std::size_t t = 0; t < 16; ++t) {
      const __m128i constants =
          _mm_load_si128(reinterpret_cast<const __m128i*>(kConstants + 4 * t));
#pragma GCC unroll 2
      for (std::size_t m = 0; m < kMessages; ++m) {
        __m128i& now = w[m][t % 4];
        if (t < 4) {
          const unsigned char* const from = bytes[m] + 64 * block + 16 * t;
          now = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)), swap);
        } else {
          const __m128i& last = w[m][(t + 3) % 4];
          now = _mm_add_epi32(_mm_sha256msg1_epu32(now, w[m][(t + 1) % 4]),
                              _mm_alignr_epi8(last, w[m][(t + 2) % 4], 4));
          now = _mm_sha256msg2_epu32(now, last);
        }
        const __m128i sums = _mm_add_epi32(now, constants);
        cdgh[m] = _mm_sha256rnds2_epu32(cdgh[m], abef[m], sums);
        abef[m] = _mm_sha256rnds2_epu32(abef[m], cdgh[m], _mm_shuffle_epi32(sums, 0x0e));
      }
    }
    for (std::size_t m = 0; m < kMessages; ++m) {
      abef[m] = _mm_add_epi32(abef[m], abef_before[m]);
      cdgh[m] = _mm_add_epi32(cdgh[m], cdgh_before[m]);
    }
  }
  for (std::size_t m = 0; m < kMessages; ++m) {
    alignas(16) std::uint32_t of_abef[4], of_cdgh[4];
    _mm_store_si128(reinterpret_cast<__m128i*>(of_abef), abef[m]);
    _mm_store_si128(reinterpret_cast<__m128i*>(of_cdgh), cdgh[m]);
    const std::uint32_t after[] = {of_abef[3], of_abef[2], of_cdgh[3], of_cdgh[2],
                                   of_abef[1], of_abef[0], of_cdgh[1], of_cdgh[0]};
    std::copy_n(after, 8, states[m]);
  }
}

bool has_instructions() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & bit_SSE4_1) == 0) return false;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & bit_SHA) != 0;
}
#endif

bool uses_instructions() {
#ifdef __x86_64__
  static const bool kHas = has_instructions();
  return kHas;
#else
  return false;
#endif
}

void add(std::uint32_t* state, const unsigned char* bytes, std::size_t blocks,
         [[maybe_unused]] bool instructions) {
#ifdef __x86_64__
  if (instructions) return add_blocks_by_instructions<1>(&state, &bytes, blocks);
#endif
  add_blocks(state, bytes, blocks);
}

constexpr std::size_t kNone = SIZE_MAX;

// Takes messages from next(), which gives kNone after the last one, and adds them to the hashes of
// their numbers, two side by side.
template <typename Next>
void hash_in_pairs(std::span<const std::string_view> messages, const Next& next,
                   std::span<Sha256> hashes) {
  struct Lane {
    std::size_t message = kNone;
    std::string_view left;
  };
  // Afterwards the lane has a block at least, or there are no more messages.
  const auto fill = [&](Lane& lane) {
    while (lane.left.size() < Sha256::kBlockBytes) {
      if (lane.message != kNone) hashes[lane.message].update(lane.left);
      lane.message = next();
      lane.left = lane.message == kNone ? std::string_view() : messages[lane.message];
      if (lane.message == kNone) return;
    }
  };
  Lane lanes[2];
  auto& [a, b] = lanes;
  fill(a);
  fill(b);
  while (a.message != kNone && b.message != kNone) {
    const std::size_t blocks = std::min(a.left.size(), b.left.size()) / Sha256::kBlockBytes;
    const std::size_t bytes = blocks * Sha256::kBlockBytes;
    Sha256::update_two(hashes[a.message], a.left.substr(0, bytes), hashes[b.message],
                       b.left.substr(0, bytes));
    for (Lane& lane : lanes) {
      lane.left.remove_prefix(bytes);
      fill(lane);
    }
  }
  for (const Lane& lane : lanes) {
    if (lane.message != kNone) hashes[lane.message].update(lane.left);
  }
}

}  // namespace

void Sha256::update(const void* data, std::size_t bytes) {
  const bool fast = instructions_ && uses_instructions();
  const auto* from = static_cast<const unsigned char*>(data);
  const std::size_t held = bytes_ % kBlockBytes;
  bytes_ += bytes;
  if (held > 0) {
    const std::size_t taken = std::min(bytes, kBlockBytes - held);
    std::copy_n(from, taken, rest_.data() + held);
    if (held + taken < kBlockBytes) return;
    add(state_.data(), rest_.data(), 1, fast);
    from += taken;
    bytes -= taken;
  }
  const std::size_t blocks = bytes / kBlockBytes;
  add(state_.data(), from, blocks, fast);
  std::copy_n(from + blocks * kBlockBytes, bytes % kBlockBytes, rest_.data());
}

void Sha256::update_two(Sha256& a, std::string_view of_a, Sha256& b, std::string_view of_b) {
#ifdef __x86_64__
  if (a.instructions_ && b.instructions_ && uses_instructions()) {
    std::uint32_t* const states[] = {a.state_.data(), b.state_.data()};
    const unsigned char* const bytes[] = {reinterpret_cast<const unsigned char*>(of_a.data()),
                                          reinterpret_cast<const unsigned char*>(of_b.data())};
    add_blocks_by_instructions<2>(states, bytes, of_a.size() / kBlockBytes);
    a.bytes_ += of_a.size();
    b.bytes_ += of_b.size();
    return;
  }
#endif
  a.update(of_a);
  b.update(of_b);
}

std::string Sha256::hex() {
  const std::uint64_t bits = bytes_ * 8;
  // A one, then zeros up to the length, which ends a block.
  unsigned char padding[2 * kBlockBytes] = {0x80};
  const std::size_t held = bytes_ % kBlockBytes;
  const std::size_t end = (held < kBlockBytes - 8 ? kBlockBytes : 2 * kBlockBytes) - held;
  for (std::size_t i = 0; i < 8; ++i) {
    padding[end - 1 - i] = static_cast<unsigned char>(bits >> (8 * i));
  }
  update(padding, end);
  std::string text;
  for (const std::uint32_t word : state_) {
    for (int shift = 28; shift >= 0; shift -= 4) text += "0123456789abcdef"[word >> shift & 15];
  }
  *this = Sha256(instructions_);
  return text;
}

std::string sha256_of(std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.hex();
}

std::vector<std::string> sha256_of_each(std::span<const std::string_view> messages, int threads,
                                        const std::function<void(std::size_t)>& prepare) {
  // The long ones first, so that all threads end at about the same time.
  std::vector<std::size_t> order(messages.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return messages[a].size() > messages[b].size();
  });
  std::atomic<std::size_t> taken = 0;
  const auto next = [&] {
    const std::size_t place = taken.fetch_add(1, std::memory_order_relaxed);
    if (place >= order.size()) return kNone;
    prepare(order[place]);
    return order[place];
  };
  std::vector<Sha256> hashes(messages.size());
  std::vector<std::jthread> others;
  try {
    while (std::ssize(others) + 1 < threads) {
      others.emplace_back([&] { hash_in_pairs(messages, next, std::span(hashes)); });
    }
  } catch (const std::system_error&) {
    // Of as many threads as there are.
  }
  hash_in_pairs(messages, next, std::span(hashes));
  others.clear();
  std::vector<std::string> digests;
  for (Sha256& hash : hashes) digests.push_back(hash.hex());
  return digests;
}

std::string sha256_of_file(const std::filesystem::path& path) {
  const InputFile file(path);
  Sha256 hash;
  std::vector<char> piece(std::min<std::uint64_t>(file.size(), 1 << 20));
  for (std::uint64_t offset = 0; offset < file.size(); offset += piece.size()) {
    const std::uint64_t bytes = std::min<std::uint64_t>(piece.size(), file.size() - offset);
    file.read(offset, piece.data(), bytes);
    hash.update(piece.data(), bytes);
  }
  return hash.hex();
}

}  // namespace steelyard
