#include "tests/framework/comm/comm_cases.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <stdexcept>
#include <string>

#include "steelyard/framework/comm/shard_sum.h"

namespace steelyard::testing {
namespace {

// Around the limits of messages: one element, less than a rank each, odd, small, large.
constexpr std::int64_t kSizes[] = {1, 3, 0, 7, 1000, 5001, 9001};

void require(bool holds, const comm::Communicator& ranks, const std::string& what) {
  if (holds) return;
  throw std::runtime_error("rank " + std::to_string(ranks.rank()) + " of " +
                           std::to_string(ranks.size()) + ": " + what);
}

template <typename T>
std::vector<Tensor> sums_of_own_shards(const comm::Communicator& ranks, std::int64_t shards,
                                       Device device) {
  const auto own = comm::shards_of_rank(ranks.rank(), ranks.size(), shards);
  std::vector<Tensor> sums;
  for (std::int64_t size : kSizes) {
    comm::ShardSum sum;
    for (std::int64_t shard = own.begin; shard < own.end; ++shard) {
      const auto tensor = static_cast<std::int64_t>(sums.size());
      sum.add(Tensor::from(shard_values<T>(shard, tensor, size), {size}).to(device));
    }
    sums.push_back(sum.take());
  }
  return sums;
}

template <typename T>
void require_tree(const comm::Communicator& ranks, std::int64_t shards,
                  std::span<const Tensor> sums) {
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const auto expected =
        tree_of_shards<T>(0, shards, static_cast<std::int64_t>(i), sums[i].size());
    const Tensor sum = sums[i].to(Device::cpu());
    require(expected.empty() ||
                std::memcmp(expected.data(), sum.data<T>(), expected.size() * sizeof(T)) == 0,
            ranks,
            "another sum of " + std::to_string(shards) + " shards in tensor " + std::to_string(i));
  }
}

void check_max(comm::Communicator& ranks) {
  const float rank = static_cast<float>(ranks.rank());
  const float last = static_cast<float>(ranks.size() - 1);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> values = {rank, -rank, ranks.rank() == 0 ? nan : inf,
                               ranks.rank() == ranks.size() - 1 ? 0.0F : -0.0F, -inf};
  const std::uint32_t control =
      ranks.max(values, ranks.rank() == 0 ? comm::kDiverged : comm::kGoOn);
  require(control == comm::kDiverged, ranks, "control word " + std::to_string(control));
  require(values[0] == last && values[1] == 0 && std::isnan(values[2]), ranks, "maximum");
  require(values[3] == 0 && !std::signbit(values[3]) && values[4] == -inf, ranks, "maximum");
  require(ranks.max({}, 1U << (ranks.rank() % 32)) == (1ULL << ranks.size()) - 1, ranks,
          "control word of all ranks");
}

void check_counts(comm::Communicator& ranks) {
  std::vector<std::int64_t> counts(3001, ranks.rank());
  counts[7] = std::int64_t{1} << 60;
  ranks.sum(counts);
  const std::int64_t n = ranks.size();
  for (std::size_t i = 0; i < counts.size(); ++i) {
    require(counts[i] == (i == 7 ? n << 60 : n * (n - 1) / 2), ranks, "sum of counts");
  }
}

void check_bytes(comm::Communicator& ranks) {
  for (int root = 0; root < ranks.size(); ++root) {
    const std::string own(static_cast<std::size_t>(1000 * ranks.rank()), 'a' + ranks.rank());
    const std::string expected(static_cast<std::size_t>(1000 * root), 'a' + root);
    require(ranks.broadcast(own, root) == expected, ranks,
            "broadcast of rank " + std::to_string(root));
    const std::vector<Tensor> tensors = {Tensor::full({2, 3}, ranks.rank()),
                                         Tensor::full({0}, 0, DType::kI64),
                                         Tensor::full({5}, ranks.rank(), DType::kU8)};
    ranks.broadcast(tensors, root);
    require(tensors[0].span<float>()[5] == static_cast<float>(root) &&
                tensors[2].span<std::uint8_t>()[4] == root,
            ranks, "broadcast of tensors");
  }
  const auto all = ranks.gather(std::string(static_cast<std::size_t>(ranks.rank() % 3) * 40, 'x') +
                                std::to_string(ranks.rank()));
  require(all.size() == static_cast<std::size_t>(ranks.size()), ranks, "number gathered");
  for (std::size_t i = 0; i < all.size(); ++i) {
    require(all[i] == std::string(i % 3 * 40, 'x') + std::to_string(i), ranks, "gathered");
  }
}

}  // namespace

template <typename T>
std::vector<T> shard_values(std::int64_t shard, std::int64_t tensor, std::int64_t size) {
  std::mt19937 random(static_cast<unsigned>(shard * 100 + tensor));
  std::vector<T> values(static_cast<std::size_t>(size));
  for (T& value : values) {
    const auto mantissa = static_cast<T>(static_cast<std::int32_t>(random()));
    value = std::ldexp(mantissa, static_cast<int>(random() % 40));
  }
  return values;
}

template <typename T>
std::vector<T> tree_of_shards(std::int64_t begin, std::int64_t end, std::int64_t tensor,
                              std::int64_t size) {
  if (end - begin == 1) return shard_values<T>(begin, tensor, size);
  const std::int64_t middle = (begin + end) / 2;
  auto sum = tree_of_shards<T>(begin, middle, tensor, size);
  const auto right = tree_of_shards<T>(middle, end, tensor, size);
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += right[i];
  return sum;
}

template std::vector<float> shard_values(std::int64_t, std::int64_t, std::int64_t);
template std::vector<float> tree_of_shards(std::int64_t, std::int64_t, std::int64_t, std::int64_t);

void check_sums(comm::Communicator& ranks, std::int64_t shards, Device device) {
  std::vector<Tensor> floats = sums_of_own_shards<float>(ranks, shards, device);
  std::vector<Tensor> doubles = sums_of_own_shards<double>(ranks, shards, device);
  std::vector<Tensor> both = floats;
  both.insert(both.end(), doubles.begin(), doubles.end());
  ranks.sum(both);
  require_tree<float>(ranks, shards, floats);
  require_tree<double>(ranks, shards, doubles);

  // Each tensor in a bucket of its own: other messages, equal bits.
  floats = sums_of_own_shards<float>(ranks, shards, device);
  std::vector<comm::Pending> buckets;
  for (const Tensor& tensor : floats) buckets.push_back(ranks.start_sum({tensor}));
  for (std::size_t i = buckets.size(); i > 0; --i) buckets[i - 1].wait();
  require_tree<float>(ranks, shards, floats);
}

void check_exact_collectives(comm::Communicator& ranks) {
  check_max(ranks);
  check_counts(ranks);
  check_bytes(ranks);
  ranks.barrier();
}

}  // namespace steelyard::testing
