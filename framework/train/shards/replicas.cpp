#include "steelyard/framework/train/shards/replicas.h"

#include <algorithm>
#include <span>
#include <stdexcept>

#include "steelyard/framework/files/safetensors.h"
#include "steelyard/framework/files/sha256.h"
#include "steelyard/framework/tensor/machine_memory.h"
#include "steelyard/framework/train/divergence.h"

namespace steelyard {
namespace {

constexpr std::size_t kDigestBytes = 64;  // of SHA-256, as text

std::string digest_of(const Tensor& tensor) {
  const Tensor host = tensor.to(Device{});
  return sha256_of({static_cast<const char*>(host.raw()), static_cast<std::size_t>(host.bytes())});
}

std::string rank_text(std::size_t rank) { return "rank " + std::to_string(rank); }

// The message of all ranks, given those of each: nothing where none has one.
std::string common_message(const std::vector<std::string>& messages) {
  const auto has_one = [](const std::string& message) { return !message.empty(); };
  const auto first = std::find_if(messages.begin(), messages.end(), has_one);
  if (first == messages.end()) return "";
  const bool same = std::all_of(messages.begin(), messages.end(),
                                [&](const std::string& message) { return message == *first; });
  return same ? *first
              : rank_text(static_cast<std::size_t>(first - messages.begin())) + ": " + *first;
}

}  // namespace

void on_all_ranks(comm::Communicator& ranks, const std::function<void()>& work) {
  if (ranks.size() == 1) return work();
  std::string input, device;
  const auto sent = [](const char* what) {
    return std::string(what).substr(0, comm::Communicator::kMostGatheredBytes);
  };
  try {
    work();
  } catch (const InputError& error) {
    input = sent(error.what());
  } catch (const DeviceError& error) {
    device = sent(error.what());
  }
  input = common_message(ranks.gather(input));
  device = common_message(ranks.gather(device));
  if (!input.empty()) throw SharedInputError(input);
  if (!device.empty()) throw SharedDeviceError(device);
}

void on_first_rank(comm::Communicator& ranks, const std::function<void()>& work) {
  if (ranks.size() == 1) return work();
  std::string error;
  try {
    if (ranks.rank() == 0) work();
  } catch (const InputError& caught) {
    error = caught.what();
  }
  error = ranks.broadcast(std::move(error));
  if (!error.empty()) throw SharedInputError(error);
}

void broadcast(std::optional<Checkpoint>& checkpoint, comm::Communicator& ranks) {
  if (ranks.size() == 1) return;
  std::string header;
  std::uint64_t bytes = 0;
  if (ranks.rank() == 0 && checkpoint) {
    checkpoint->tensors = safetensors_order(std::move(checkpoint->tensors));
    const std::vector<SafetensorsEntry> entries = safetensors_layout(checkpoint->tensors);
    header = encode_safetensors_header(entries, checkpoint->metadata);
    bytes = entries.empty() ? 0 : entries.back().end;
  }
  header = ranks.broadcast(std::move(header));
  ranks.broadcast(std::as_writable_bytes(std::span(&bytes, 1)));
  checkpoint = header.empty() ? std::nullopt : std::move(checkpoint);
  if (header.empty()) return;
  if (ranks.rank() != 0) {
    if (bytes > static_cast<std::uint64_t>(machine_memory_bytes())) {
      throw std::runtime_error("rank 0 announces a checkpoint of " + std::to_string(bytes) +
                               " bytes, and this machine has memory of " +
                               std::to_string(machine_memory_bytes()));
    }
    const std::size_t prefix = std::min<std::size_t>(kSafetensorsPrefixBytes, header.size());
    SafetensorsHeader parsed = parse_safetensors_header(
        "checkpoint of rank 0", std::string_view(header).substr(prefix), bytes);
    checkpoint.emplace().metadata = std::move(parsed.metadata);
    for (const SafetensorsEntry& entry : parsed.entries) {
      checkpoint->tensors.push_back({entry.name, Tensor::empty(entry.shape, entry.dtype)});
    }
  }
  std::vector<Tensor> tensors;
  tensors.reserve(checkpoint->tensors.size());
  for (const NamedTensor& t : checkpoint->tensors) tensors.push_back(t.tensor);
  ranks.broadcast(tensors);
}

void require_agreement(const std::vector<Agreement>& own, comm::Communicator& ranks) {
  if (ranks.size() == 1) return;
  for (const auto& [name, value] : own) {
    const std::vector<std::string> all = ranks.gather(value);
    for (std::size_t rank = 1; rank < all.size(); ++rank) {
      if (all[rank] == all[0]) continue;
      throw SharedInputError(rank_text(rank) + " has another " + name +
                             " than rank 0: " + all[rank] + ", expected " + all[0]);
    }
  }
}

void require_equal_replicas(const std::vector<NamedTensor>& tensors, const std::string& when,
                            comm::Communicator& ranks) {
  if (ranks.size() == 1) return;
  std::string own;
  for (const NamedTensor& t : tensors) own += digest_of(t.tensor);
  const std::vector<std::string> all = ranks.gather_equal(own);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const auto digest = [&](const std::string& of) {
        return of.substr(i * kDigestBytes, kDigestBytes);
      };
      if (digest(all[rank]) == digest(all[0])) continue;
      throw TrainingDiverged(when + ": " + rank_text(rank) + " has other values than rank 0 in " +
                             tensors[i].name +
                             ": the memory or the arithmetic of one of them is at fault");
    }
  }
}

}  // namespace steelyard
