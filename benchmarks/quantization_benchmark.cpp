// Bandwidth of the quantization kernels against the fastest copy with the same threads: those that
// a training step launches ("training: ..."), and every operation, granularity and format of a
// QuantPlan.
//
// Every round runs each kernel, both copies and all moves once, one after the other, so that a
// drift of the machine meets all of them; a row is the median over rounds. Copy = the faster of
// memcpy and a copy with non-temporal stores. Move = a loop with the same reads and writes as the
// kernel and no arithmetic: what the machine's memory allows.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <string>
#include <type_traits>
#include <vector>

#include "benchmarks/quantization_cases.h"
#include "steelyard/kernels/backend.h"
#include "steelyard/kernels/cpu/blocks.h"
#include "steelyard/kernels/cpu/vectorize.h"
#include "steelyard/kernels/fake_quantize/fake_quantize.h"
#include "steelyard/kernels/histogram/formulas.h"
#include "steelyard/kernels/quant_plan/quant_plan.h"
#include "steelyard/kernels/reduce/reduce.h"
#include "steelyard/kernels/requantize/requantize.h"
#include "steelyard/kernels/weight_codes/weight_codes.h"

namespace {

using namespace steelyard::kernels;

constexpr std::int64_t kMiB = 1 << 20;

struct Case {
  std::string name;
  double bytes_per_element;
  std::function<void()> run;
  std::optional<Move> move = {};  // that of its kind
  std::vector<double> seconds = {};
};

// Memory that starts on a cache line, as the engine's tensors do.
struct AlignedDelete {
  void operator()(void* p) const { ::operator delete[](p, std::align_val_t(kCacheLine)); }
};
template <typename T>
using AlignedArray = std::unique_ptr<T[], AlignedDelete>;
template <typename T>
AlignedArray<T> aligned_array(std::int64_t n) {
  return AlignedArray<T>(static_cast<T*>(
      ::operator new[](static_cast<std::size_t>(n) * sizeof(T), std::align_val_t(kCacheLine))));
}

// Arrays of n values and their codes, touched by the threads that will use them. Values are the
// same in every format: half-steps of the scale around the code range, so that some are clamped.
struct Arrays {
  Arrays(ValueType value_type, std::int64_t bytes)
      : type(value_type),
        n(bytes / value_bytes(value_type)),
        x(aligned_array<std::uint8_t>(bytes)),
        grad(aligned_array<std::uint8_t>(bytes)),
        y(aligned_array<std::uint8_t>(bytes)),
        codes(aligned_array<std::uint8_t>(n)),
        mask(aligned_array<std::uint8_t>(mask_bytes(n))),
        counts(2048, 0) {
    visit_value_type(type, [&](auto* tag) {
      using V = std::remove_pointer_t<decltype(tag)>;
      V* values = reinterpret_cast<V*>(x.get());
      V* gradients = reinterpret_cast<V*>(grad.get());
      parallel_for(n, 1, [&](std::int64_t begin, std::int64_t end) {
        std::uint32_t state = 12345U + static_cast<std::uint32_t>(begin);
        for (std::int64_t i = begin; i < end; ++i) {
          state = state * 1664525U + 1013904223U;
          const float value = static_cast<float>(state >> 8) / 8388608.0F * 8.0F - 8.0F;
          values[i] = narrow<V>(static_cast<ComputeType<V>>(value));
          gradients[i] = values[i];
        }
      });
    });
    std::memset(y.get(), 0, static_cast<std::size_t>(bytes));
    std::memset(codes.get(), 0x5A, static_cast<std::size_t>(n));
    std::memset(mask.get(), 0xA5, static_cast<std::size_t>(mask_bytes(n)));
  }

  ValueType type;
  std::int64_t n;
  AlignedArray<std::uint8_t> x, grad, y, codes, mask;
  std::vector<std::int64_t> counts;
};

void plain_copy(const Arrays& a) {
  parallel_for(a.n * value_bytes(a.type), 1, [&](std::int64_t begin, std::int64_t end) {
    std::memcpy(a.y.get() + begin, a.x.get() + begin, static_cast<std::size_t>(end - begin));
  });
}

void non_temporal_copy(const Arrays& a) {
  // Sizes are whole MiB and the arrays are aligned: all of it is whole cache lines.
  parallel_for(
      a.n * value_bytes(a.type) / kCacheLine, 1, [&](std::int64_t begin, std::int64_t end) {
        stream_lines(a.y.get() + begin * kCacheLine, a.x.get() + begin * kCacheLine, end - begin);
        stream_fence();
      });
}

// An unsigned integer of as many bytes as a value.
template <int kBytes>
using Word = std::conditional_t<kBytes == 8, std::uint64_t,
                                std::conditional_t<kBytes == 4, std::uint32_t, std::uint16_t>>;

template <typename W>
void move_words(Move move, Arrays& a) {
  const W* x = reinterpret_cast<const W*>(a.x.get());
  const W* grad = reinterpret_cast<const W*>(a.grad.get());
  W* y = reinterpret_cast<W*>(a.y.get());
  const bool stream = exceeds_cache(a.n * static_cast<std::int64_t>(sizeof(W)));
  const auto write = [&](auto* to, const auto& value) {
    parallel_blocks(a.n, [&](std::int64_t begin, std::int64_t end) {
      write_block(to + begin, end - begin, stream, kSmallChunkBytes,
                  [&](std::int64_t at, std::int64_t count, auto* out) {
                    STEELYARD_VECTORIZE
                    for (std::int64_t i = 0; i < count; ++i) out[i] = value(begin + at + i);
                  });
    });
  };
  if (move == Move::kReadToBytes || move == Move::kReadCopy) {
    std::atomic<W> seen{0};
    parallel_blocks(a.n, [&](std::int64_t begin, std::int64_t end) {
      W bits = 0;
      for (std::int64_t i = begin; i < end; ++i) bits |= x[i];
      seen.fetch_or(bits, std::memory_order_relaxed);
    });
    a.counts[0] = static_cast<std::int64_t>(seen.load());
  }
  switch (move) {
    case Move::kCopy:
    case Move::kReadCopy:
      return write(y, [=](std::int64_t i) { return x[i]; });
    case Move::kTwoToOne:
      return write(y, [=](std::int64_t i) { return static_cast<W>(x[i] ^ grad[i]); });
    case Move::kToBytes:
    case Move::kReadToBytes:
      return write(a.codes.get(), [=](std::int64_t i) { return static_cast<std::uint8_t>(x[i]); });
    case Move::kFromBytes:
      return write(y, [codes = a.codes.get()](std::int64_t i) { return W{codes[i]}; });
  }
}

// A plan with the memory that its parameters live in.
struct Runner {
  Runner(const Work& work, const Sharing& sharing, Arrays& a) {
    const QuantDescriptor d = descriptor_of(work, sharing, a.type, a.n);
    plan = QuantPlan::select(d, DeviceType::kCpu);
    const auto sets = static_cast<std::size_t>(plan.num_parameter_sets());
    scale.assign(sets, 0.05);
    scale_f32.assign(sets, 0.05F);
    zero_point.assign(sets, d.spec.range.qmax / 2);
    lo.assign(sets, 1);
    hi.assign(sets, -1);
    grads.assign(2 * sets, 0);
    workspace.resize(plan.workspace_bytes());
    const bool wide = a.type == ValueType::kF64;
    const auto bytes = [](auto* data, std::int64_t count) -> QuantArray {
      return {reinterpret_cast<std::byte*>(data), count};
    };
    const std::int64_t values = a.n * value_bytes(a.type);
    const std::int64_t reals = plan.num_parameter_sets() * (wide ? 8 : 4);
    arrays = taken_by(work, {.x = bytes(a.x.get(), values),
                             .grad_y = bytes(a.grad.get(), values),
                             .y = bytes(a.y.get(), values),
                             .grad_x = bytes(a.y.get(), values),
                             .codes = bytes(a.codes.get(), a.n),
                             .mask = bytes(a.mask.get(), mask_bytes(a.n)),
                             .scale = wide ? QuantArray(scale) : QuantArray(scale_f32),
                             .zero_point = zero_point,
                             .grad_scale = bytes(grads.data(), reals),
                             .grad_zero_point = bytes(grads.data() + sets, reals),
                             .range_lo = bytes(lo.data(), reals),
                             .range_hi = bytes(hi.data(), reals),
                             .initialized = {&initialized, 1}});
    if (work.statistics == Statistics::kDelayed) run();
  }

  void run() { plan.run(nullptr, std::as_writable_bytes(std::span(workspace)), arrays); }

  QuantPlan plan;
  QuantArrays arrays;
  std::vector<double> scale, lo, hi, grads;
  std::vector<float> scale_f32;
  std::vector<std::int32_t> zero_point;
  std::vector<std::uint8_t> workspace;
  std::uint8_t initialized = 0;
};

// What FakeQuantize and the quantized layers launch in a step, with the memory that it needs.
struct TrainingKernels {
  static constexpr std::int64_t kRow = 1024;     // weights of an output
  static constexpr std::int64_t kChannels = 64;  // of a layer's output

  explicit TrainingKernels(Arrays& arrays)
      : a(arrays),
        x(reinterpret_cast<const float*>(a.x.get())),
        acc(aligned_array<std::int32_t>(a.n)),
        rows(a.n / kRow),
        lo(std::vector<float>(static_cast<std::size_t>(rows), 1)),
        hi(lo.size(), -1),
        scales(lo.size(), 0.05F),
        pass_scales(lo.size()),
        zero_range(lo.size()) {
    for (std::int64_t i = 0; i < a.n; ++i) acc[i] = static_cast<std::int32_t>(i * 7919 % 20011);
  }

  RangeQuantizer range() {
    return {&one_lo,        &one_hi,     nullptr,     &scale,          &zero_point,
            &zero_range[0], &non_finite, &pass_scale, &pass_zero_point};
  }

  void observe() { run(ObserveValues{.rule = rule, .to = range(), .n = a.n, .x = x}); }
  void quantize_activations() {
    run(Quantize<float, std::uint8_t>{ChannelLayout::per_tensor(a.n), rule.codes, x, &kScale,
                                      &kZeroPoint, a.codes.get(), a.mask.get()});
  }
  void dequantize_activations() {
    run(Dequantize<float, std::uint8_t>{ChannelLayout::per_tensor(a.n), a.codes.get(), &kScale,
                                        &kZeroPoint, reinterpret_cast<float*>(a.y.get())});
  }
  void mask_gradient() {
    run(ApplyMask<float>{a.n, a.mask.get(), reinterpret_cast<const float*>(a.grad.get()),
                         reinterpret_cast<float*>(a.y.get())});
  }
  void mask_and_sum_gradient() {
    run(ApplyMaskAndSum<float>{.rows = a.n / kChannels,
                               .channels = kChannels,
                               .mask = a.mask.get(),
                               .grad_y = reinterpret_cast<const float*>(a.grad.get()),
                               .grad_x = reinterpret_cast<float*>(a.y.get()),
                               .sums = bias_gradient.data()});
  }
  void add_codes() {
    const CodesOf<std::uint8_t> left{bytes(a.x), &kScale, &kZeroPoint};
    const CodesOf<std::uint8_t> right{bytes(a.grad), &scale, &kZeroPoint};
    run(RequantizeAdd<std::uint8_t, std::uint8_t, std::uint8_t>{.n = a.n,
                                                                .activation = Activation::kRelu,
                                                                .a = left,
                                                                .b = right,
                                                                .scale = &kScale,
                                                                .zero_point = &kZeroPoint,
                                                                .range = rule.codes,
                                                                .codes = a.codes.get(),
                                                                .mask = a.mask.get()});
  }
  void average_codes() {
    run(RequantizeAverage<std::uint8_t>{.n = a.n,
                                        .average = {Average::Kind::kWindow, 4},
                                        .sums = acc.get(),
                                        .in_scale = &kScale,
                                        .scale = &kScale,
                                        .zero_point = &kZeroPoint,
                                        .range = rule.codes,
                                        .codes = a.codes.get(),
                                        .mask = a.mask.get()});
  }
  void quantize_weights_of_step() {
    WeightQuantization op;
    op.rows = op.scales = rows;
    op.row_size = kRow;
    op.source = ScaleSource::kExtremes;
    op.rule = {.restarts = true, .codes = {-127, 127}, .symmetric = true};
    WeightQuantizerArrays quantizer{};
    quantizer.lo = lo.data();
    quantizer.hi = hi.data();
    quantizer.scale = scales.data();
    quantizer.zero_range = zero_range.data();
    quantizer.non_finite = &non_finite;
    WeightCodeArrays to{};
    to.codes = reinterpret_cast<std::int8_t*>(a.codes.get());
    to.mask = a.mask.get();
    to.pass_scale = pass_scales.data();
    run(QuantizeWeights{op, x, quantizer, {}, to});
  }
  void observe_product() {
    run(ObserveAccumulators{.rule = rule,
                            .to = range(),
                            .op = product,
                            .acc = acc.get(),
                            .bias = nullptr,
                            .product_scale = product_scales.data()});
  }
  void requantize_product() {
    run(RequantizeAccumulators<std::uint8_t>{.op = product,
                                             .acc = acc.get(),
                                             .bias = nullptr,
                                             .product_scale = product_scales.data(),
                                             .scale = &kScale,
                                             .zero_point = &kZeroPoint,
                                             .range = rule.codes,
                                             .codes = a.codes.get(),
                                             .mask = a.mask.get()});
  }

  template <typename Array>
  static const std::uint8_t* bytes(const Array& values) {
    return reinterpret_cast<const std::uint8_t*>(values.get());
  }

  static constexpr float kScale = 0.05F;
  static constexpr std::int32_t kZeroPoint = 127;
  Arrays& a;
  const float* x;
  AlignedArray<std::int32_t> acc;
  std::int64_t rows;
  std::vector<float> lo, hi, scales, pass_scales;
  std::vector<std::uint8_t> zero_range;
  std::vector<float> product_scales = std::vector<float>(kChannels, 1e-3F);
  std::vector<float> bias_gradient = std::vector<float>(kChannels);
  Requantize product{
      .rows = a.n / kChannels, .channels = kChannels, .activation = Activation::kRelu};
  RangeRule rule{.codes = {0, 255}};
  float one_lo = 1, one_hi = -1, scale = 1, pass_scale = 1;
  std::int32_t zero_point = 0, pass_zero_point = 0;
  std::int64_t non_finite = 0;
};

void add_training_cases(Arrays& a, const std::regex& filter, std::vector<Case>& all) {
  struct Row {
    const char* name;
    double bytes_per_element;  // of values, accumulators, codes and masks, each once
    void (TrainingKernels::*run)();
  };
  const Row table[] = {
      {"observe", 4, &TrainingKernels::observe},
      {"quantize u8 + mask", 5.125, &TrainingKernels::quantize_activations},
      {"dequantize u8", 5, &TrainingKernels::dequantize_activations},
      {"gradient from mask", 8.125, &TrainingKernels::mask_gradient},
      {"gradient from mask, summed", 8.125, &TrainingKernels::mask_and_sum_gradient},
      {"weights, observed", 5.125, &TrainingKernels::quantize_weights_of_step},
      {"observe product", 4, &TrainingKernels::observe_product},
      {"requantize product + mask", 5.125, &TrainingKernels::requantize_product},
      {"residual sum + mask", 3.125, &TrainingKernels::add_codes},
      {"average + mask", 5.125, &TrainingKernels::average_codes}};
  std::shared_ptr<TrainingKernels> kernels;
  for (const Row& row : table) {
    const std::string name = std::string("training: ") + row.name;
    if (!std::regex_search(name, filter)) continue;
    if (!kernels) kernels = std::make_shared<TrainingKernels>(a);
    all.push_back({name, row.bytes_per_element, [kernels, run = row.run] { (*kernels.*run)(); }});
  }
}

// The two copies first.
std::vector<Case> cases(Arrays& a, const std::regex& filter) {
  const double value = static_cast<double>(value_bytes(a.type));
  std::vector<Case> all{{"copy: memcpy", 2 * value, [&a] { plain_copy(a); }},
                        {"copy: non-temporal", 2 * value, [&a] { non_temporal_copy(a); }}};
  for (int i = 0; i < static_cast<int>(std::size(kMoveNames)); ++i) {
    const auto move = static_cast<Move>(i);
    all.push_back({std::string("move: ") + kMoveNames[i], bytes_moved(move, a.type),
                   [&a, move] {
                     visit_value_type(a.type,
                                      [&](auto* tag) { move_words<Word<sizeof(*tag)>>(move, a); });
                   },
                   move});
  }
  for (const Work& work : works()) {
    for (const Sharing& sharing : sharings()) {
      const std::string name = std::string(work.name) + ", " + sharing.name;
      if (!makes_sense(work, sharing) || !std::regex_search(name, filter)) continue;
      auto runner = std::make_shared<Runner>(work, sharing, a);
      all.push_back(
          {name, bytes_per_element(work, a.type), [runner] { runner->run(); }, work.move});
    }
  }
  if (a.type != ValueType::kF32) return all;
  add_training_cases(a, filter, all);
  const float* x = reinterpret_cast<const float*>(a.x.get());
  if (std::regex_search("min_max", filter)) {
    all.push_back({"min_max", 4, [&a, x] {
                     float lo, hi;
                     run(MinMax<float>{ChannelLayout::per_tensor(a.n), x, &lo, &hi, nullptr});
                   }});
  }
  if (std::regex_search("histogram", filter)) {
    all.push_back({"histogram, 2048 bins", 4, [&a, x] {
                     constexpr std::int64_t kBins = 2048;
                     std::int32_t exponent = smallest_exponent(8.0, kBins);
                     float lo = -8, hi = 8;
                     run(CountInHistograms{{1, kBins, a.counts.data(), &exponent, &lo, &hi},
                                           ChannelLayout::per_tensor(a.n),
                                           x});
                   }});
  }
  return all;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double seconds_of(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

nlohmann::json measure(ValueType type, std::int64_t mib, int rounds, const std::regex& filter) {
  Arrays arrays(type, mib * kMiB);
  std::vector<Case> all = cases(arrays, filter);
  for (const Case& one : all) one.run();
  for (int round = 0; round < rounds; ++round) {
    for (Case& one : all) one.seconds.push_back(seconds_of(one.run));
  }
  const auto bandwidth = [&](const Case& one) {
    return one.bytes_per_element * static_cast<double>(arrays.n) / median(one.seconds) * 1e-9;
  };
  const double copy = std::max(bandwidth(all[0]), bandwidth(all[1]));
  const auto move_seconds = [&](Move move) {
    return median(all[2 + static_cast<std::size_t>(move)].seconds);
  };
  nlohmann::json rows = nlohmann::json::array();
  for (const Case& one : all) {
    const double speed = bandwidth(one);
    fmt::print("{:4} MiB {:4}  {:56} {:7.1f} GB/s  {:5.2f} of copy", mib, name_of(type), one.name,
               speed, speed / copy);
    nlohmann::json row{{"mib", mib},        {"type", name_of(type)},
                       {"name", one.name},  {"milliseconds", median(one.seconds) * 1e3},
                       {"gb_per_s", speed}, {"ratio_to_copy", speed / copy}};
    if (one.move) {
      const double ratio = move_seconds(*one.move) / median(one.seconds);
      fmt::print("  {:5.2f} of move", ratio);
      row["move"] = kMoveNames[static_cast<int>(*one.move)];
      row["ratio_to_move"] = ratio;
    }
    fmt::print("\n");
    std::fflush(stdout);
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Bandwidth of the quantization kernels against copy");
  std::vector<std::int64_t> sizes{64, 256};
  int rounds = 15;
  int threads = num_threads();
  std::string out;
  std::vector<std::string> types{"f32", "f64", "f16", "bf16"};
  std::string filter = ".";
  app.add_option("--mib", sizes, "Sizes of an array of values in MiB");
  app.add_option("--types", types, "Of f32, f64, f16, bf16");
  app.add_option("--filter", filter, "Only what this regular expression finds in its name");
  app.add_option("--rounds", rounds, "Interleaved rounds");
  app.add_option("--threads", threads, "CPU threads");
  app.add_option("--out", out, "JSON file to write");
  CLI11_PARSE(app, argc, argv);
  set_num_threads(threads);

  nlohmann::json rows = nlohmann::json::array();
  for (const ValueType type :
       {ValueType::kF32, ValueType::kF64, ValueType::kF16, ValueType::kBF16}) {
    if (std::find(types.begin(), types.end(), name_of(type)) == types.end()) continue;
    for (const std::int64_t mib : sizes) {
      for (auto& row : measure(type, mib, rounds, std::regex(filter)))
        rows.push_back(std::move(row));
    }
  }
  if (out.empty()) return 0;
  std::ofstream(out) << nlohmann::json{{"benchmark", "quantization"},
                                       {"cpu", cpu_name()},
                                       {"threads", threads},
                                       {"unix_time", std::time(nullptr)},
                                       {"rounds", rounds},
                                       {"rows", rows}}
                            .dump(2)
                     << '\n';
  return 0;
}
