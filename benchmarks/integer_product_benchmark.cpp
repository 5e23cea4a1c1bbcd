// Times exact integer products and float32 products of the same shape, in turn: those of
// training on this machine, and those of int16 pairs, which processors without VNNI use.
//
// With STEELYARD_INSTRUCTIONS=x86-64-v3 in the environment it measures what a machine with AVX2
// does.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "steelyard/kernels/backend.h"
#include "steelyard/kernels/conv/conv.h"
#include "steelyard/kernels/integer_product/integer_product.h"
#include "steelyard/kernels/matmul/matmul.h"

namespace steelyard::kernels {
namespace {

struct Case {
  std::string name;
  Conv2dShape shape;
};

Conv2dShape conv(std::int64_t batch, std::int64_t size, std::int64_t in, std::int64_t out,
                 std::int64_t kernel) {
  Conv2dShape s{.batch = batch, .in_h = size, .in_w = size, .in_channels = in, .out_channels = out};
  s.kernel_h = s.kernel_w = kernel;
  s.pad_h = s.pad_w = kernel / 2;
  return s;
}

// A product of matrices is a 1x1 convolution of images of one pixel.
std::vector<Case> cases() {
  return {{"matmul 128 x 64 x 256", conv(128, 1, 64, 256, 1)},
          {"matmul 2048 x 1024 x 1024", conv(2048, 1, 1024, 1024, 1)},
          {"conv3x3 1 -> 32, 28 x 28", conv(128, 28, 1, 32, 3)},
          {"conv3x3 16 -> 16, 32 x 32", conv(64, 32, 16, 16, 3)},
          {"conv3x3 32 -> 64, 14 x 14", conv(128, 14, 32, 64, 3)},
          {"conv3x3 64 -> 64, 8 x 8", conv(64, 8, 64, 64, 3)},
          {"conv3x3 64 -> 64, 56 x 56", conv(2, 56, 64, 64, 3)},
          {"conv1x1 64 -> 128, 14 x 14", conv(32, 14, 64, 128, 1)}};
}

// The median of each program's times, which take turns.
template <typename... Program>
std::array<double, sizeof...(Program)> medians(int rounds, const Program&... program) {
  std::array<std::vector<double>, sizeof...(Program)> times;
  for (int round = -1; round < rounds; ++round) {  // the first one warms up
    std::size_t i = 0;
    const auto time = [&](const auto& f) {
      const auto begin = std::chrono::steady_clock::now();
      f();
      const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
      if (round >= 0) times[i].push_back(passed.count());
      ++i;
    };
    (time(program), ...);
  }
  std::array<double, sizeof...(Program)> middle{};
  for (std::size_t i = 0; i < times.size(); ++i) {
    std::sort(times[i].begin(), times[i].end());
    middle[i] = times[i][times[i].size() / 2];
  }
  return middle;
}

std::array<double, 3> measured(const Conv2dShape& s, int rounds) {
  std::mt19937 random(1);
  std::vector<std::uint8_t> x(static_cast<std::size_t>(s.input_size()));
  std::vector<std::int8_t> w(static_cast<std::size_t>(s.weight_size()));
  std::vector<float> fx(x.size()), fw(w.size()), fy(static_cast<std::size_t>(s.output_size()));
  std::vector<std::int32_t> acc(fy.size());
  for (std::size_t i = 0; i < x.size(); ++i) fx[i] = x[i] = static_cast<std::uint8_t>(random());
  for (std::size_t i = 0; i < w.size(); ++i) fw[i] = w[i] = static_cast<std::int8_t>(random());
  const std::int32_t zero_point = 113;
  const IntegerConv2d<std::uint8_t> product{
      .shape = s, .x = x.data(), .zero_point = &zero_point, .w = w.data(), .acc = acc.data()};
  IntegerConv2d<std::uint8_t> pairs = product;
  pairs.backend = Backend::kEigen;
  const auto of_floats = [&] {
    if (s.in_h == 1) {
      run(Matmul<float>{
          .shape = {.m = s.batch, .n = s.out_channels, .k = s.in_channels, .transpose_b = true},
          .a = fx.data(),
          .b = fw.data(),
          .c = fy.data()});
    } else {
      run(Conv2d<float>{
          .shape = s, .x = fx.data(), .w = fw.data(), .bias = nullptr, .y = fy.data()});
    }
  };
  return medians(
      rounds, of_floats, [&] { run(product); }, [&] { run(pairs); });
}

int benchmark(int argc, char** argv) {
  CLI::App app("Integer products compared with float32 products of the same shape.");
  int rounds = 25, threads = 0;
  std::string out;
  app.add_option("--rounds", rounds, "Turns of each (default: 25)")->check(CLI::Range(1, 10000));
  app.add_option("--threads", threads, "(default: all cores)")->check(CLI::Range(1, 4096));
  app.add_option("--out", out, "A JSON file to write");
  CLI11_PARSE(app, argc, argv);
  if (threads > 0) set_num_threads(threads);
  nlohmann::ordered_json json{{"backend", backend_text()}, {"threads", num_threads()}};
  fmt::print("{}, {} threads; G multiply-adds a second\n{:<28}{:>10}{:>10}{:>10}{:>12}{:>12}\n",
             backend_text(), num_threads(), "", "float32", "training", "pairs", "/ float32",
             "pairs / f32");
  for (const auto& [name, shape] : cases()) {
    const auto [floats, training, pairs] = measured(shape, rounds);
    const double work = static_cast<double>(shape.multiply_adds()) / 1e9;
    fmt::print("{:<28}{:>10.1f}{:>10.1f}{:>10.1f}{:>12.2f}{:>12.2f}\n", name, work / floats,
               work / training, work / pairs, floats / training, floats / pairs);
    json["cases"].push_back({{"name", name},
                             {"multiply_adds", shape.multiply_adds()},
                             {"float_seconds", floats},
                             {"training_seconds", training},
                             {"pairs_seconds", pairs}});
  }
  if (!out.empty()) std::ofstream(out) << json.dump(1) << "\n";
  return 0;
}

}  // namespace
}  // namespace steelyard::kernels

int main(int argc, char** argv) { return steelyard::kernels::benchmark(argc, argv); }
