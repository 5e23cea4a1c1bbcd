// What every oneDNN kernel needs: engine, stream, scratch memory and a cache of primitives.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <dnnl.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "steelyard/kernels/conv/conv.h"

namespace steelyard::kernels::onednn {

// The process's CPU engine.
const dnnl::engine& cpu_engine();

// The calling thread's stream. The CPU executes in order and returns when done.
dnnl::stream& cpu_stream();

// The calling thread's 64-byte aligned buffers, grown on demand, contents undefined. A buffer stays
// valid until the same slot is asked for again.
enum class Scratch { kWeights, kScratchpad, kSource, kDestination, kCount };
void* scratch(Scratch slot, std::size_t bytes);

// Attributes that let the caller pass scratchpad memory: one primitive may then run on any thread.
dnnl::primitive_attr user_scratchpad();

// A memory object over the caller's data (const is cast away: oneDNN only reads inputs).
inline dnnl::memory wrap(const dnnl::memory::desc& desc, const void* data) {
  return dnnl::memory(desc, cpu_engine(), const_cast<void*>(data));
}
inline dnnl::memory scratch_memory(Scratch slot, const dnnl::memory::desc& desc) {
  return wrap(desc, scratch(slot, desc.get_size()));
}

// The reorder from one layout or type to another, none where they are the same.
std::optional<dnnl::reorder> reorder_between(const dnnl::memory::desc& from,
                                             const dnnl::memory::desc& to);
// `data`, laid out as the reorder's source, as its destination: in the slot, or `data` itself where
// there is no reorder.
dnnl::memory reordered(const std::optional<dnnl::reorder>& reorder, const dnnl::memory::desc& from,
                       const dnnl::memory::desc& to, const float* data, Scratch slot);

// All that a primitive's code depends on: `kind` names the computation within one cache.
using PrimitiveKey = std::array<std::int64_t, 16>;
PrimitiveKey conv_key(const Conv2dShape& shape, int kind);

// Thread-safe map from keys to immutable values. Emptied when it holds kCapacity entries, so that
// ever-changing shapes cannot fill the memory.
template <typename Value>
class PrimitiveCache {
 public:
  template <typename Make>
  std::shared_ptr<const Value> get(const PrimitiveKey& key, Make&& make) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const auto found = values_.find(key); found != values_.end()) return found->second;
    if (values_.size() >= kCapacity) values_.clear();
    auto value = std::make_shared<const Value>(make());
    values_.emplace(key, value);
    return value;
  }

 private:
  static constexpr std::size_t kCapacity = 1024;
  std::mutex mutex_;
  std::map<PrimitiveKey, std::shared_ptr<const Value>> values_;
};

}  // namespace steelyard::kernels::onednn
