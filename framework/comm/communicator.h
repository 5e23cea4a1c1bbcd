// The ranks of a run, and what they do together.
//
// Collective: every rank calls the same functions in the same order with arguments of the same
// sizes. A thread of the communicator's own does the work, in that order, so that sums that were
// started proceed while the caller computes. Errors of the transport (RankLost) are thrown in the
// call that waits, and in every later one. The functions are called by one thread.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "steelyard/framework/comm/collectives.h"
#include "steelyard/framework/comm/gpu_sums.h"
#include "steelyard/framework/comm/transport.h"
#include "steelyard/framework/tensor/tensor.h"

namespace steelyard::comm {

// The flags that ranks exchange with every step, as bits of one word: a bit that any rank sets
// reaches all.
enum ControlBits : std::uint32_t { kGoOn = 0, kStop = 1, kDiverged = 2 };

// Since the communicator was made.
struct CommStats {
  std::int64_t bytes_sent = 0;
  double busy_seconds = 0;    // of the communicator's thread; waiting for other ranks included
  double waited_seconds = 0;  // of the caller: what was not hidden behind its own work
};

// A sum that was started. It goes on, and keeps its tensors, whether or not somebody waits.
class Pending {
 public:
  Pending() = default;
  bool valid() const { return wait_ != nullptr; }
  // Returns when the tensors hold the sum; the next call returns at once.
  void wait() {
    if (auto wait = std::exchange(wait_, nullptr)) wait();
  }

 private:
  friend class Communicator;
  std::function<void()> wait_;
};

class Communicator {
 public:
  using Connect = std::function<std::unique_ptr<Transport>()>;
  static constexpr std::size_t kPieceBytes = std::size_t{4} << 20;
  // The longest text from one rank (at most the header of a checkpoint), and from each of all
  // ranks.
  static constexpr std::size_t kMostBroadcastBytes = std::size_t{32} << 20;
  static constexpr std::size_t kMostGatheredBytes = std::size_t{1} << 20;

  // This process alone: every function returns at once.
  Communicator() = default;
  // Calls `connect` in the communicator's thread, which alone uses the transport. Messages have up
  // to `piece_bytes`; results do not depend on it.
  explicit Communicator(Connect connect, std::size_t piece_bytes = kPieceBytes);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  // Adds tensors of f32 and f64 over the ranks, in place: a fixed binary tree, with the same bits
  // on every rank, and for any number of ranks that share the shards (shard_sum.h). Of a NaN only
  // that it is one is promised. A GPU's tensors travel through the host's memory.
  void sum(const std::vector<Tensor>& tensors) { start_sum(tensors).wait(); }
  // Begins a sum() that goes on while the caller does other work; the tensors belong to the sum
  // until wait() returns.
  [[nodiscard]] Pending start_sum(std::vector<Tensor> tensors);

  // From now on a GPU's tensors on `device` travel between the GPUs of the ranks, over NCCL; what
  // the device's queue gets after wait() sees the sums, and the host waits for nothing. A step that
  // sums is not captured. Called by all ranks; throws InputError in a build without NCCL.
  void connect_gpus(Device device, GpuSums sums = GpuSums::kExact);

  // The largest of each value over the ranks, exact in any order: +0 is larger than -0, and NaN
  // larger than everything. Returns the bits of `control` that any rank has set.
  std::uint32_t max(std::span<float> values, std::uint32_t control = 0);
  void sum(std::span<std::int64_t> counts);

  // Every rank's bytes become the root's.
  void broadcast(std::span<std::byte> bytes, int root = 0);
  void broadcast(const std::vector<Tensor>& tensors, int root = 0);
  // Returns the root's; what the others give is not used. Here and below, every rank throws
  // std::runtime_error that names a rank which announces another number of bytes than it may send,
  // before anything is allocated for them.
  std::string broadcast(std::string bytes, int root = 0, std::size_t most = kMostBroadcastBytes);
  // What every rank gave, in rank order; each of at most `most` bytes.
  std::vector<std::string> gather(std::string_view bytes, std::size_t most = kMostGatheredBytes);
  // The gather() of texts that all have the same length.
  std::vector<std::string> gather_equal(std::string_view bytes);
  // Returns when every rank has called it.
  void barrier();

  // The end of the run, for which every rank waits, also after an error that all ranks know of.
  // Destroyed without it, the communicator leaves alone: the other ranks then lose this one.
  void finish();

  CommStats stats() const;

 private:
  using Job = std::function<void(Collectives&)>;
  struct Work;  // a job and how it ended

  std::vector<std::string> gather(std::string_view bytes, Lengths lengths);
  std::shared_ptr<Work> start(Job job);
  void wait(Work& work);
  void run_job(Job job) { wait(*start(std::move(job))); }
  void serve(const Connect& connect, std::size_t piece_bytes);
  bool run_jobs(Collectives& collectives);
  void check_gpu();
  void stop_thread(bool finished);

  int rank_ = 0, size_ = 1;
  bool finished_ = false;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Work>> queue_;
  bool leaving_ = false;
  Transport* transport_ = nullptr;  // while the thread has it
  std::exception_ptr failure_;
  CommStats stats_;
  std::shared_ptr<GpuReducer> gpu_;
  std::thread thread_;
};

}  // namespace steelyard::comm
