#include "steelyard/framework/comm/communicator.h"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

#include "steelyard/framework/comm/nccl.h"

namespace steelyard::comm {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kGpuChecks{1};

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

float larger(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<float>::quiet_NaN();
  if (a != b) return a > b ? a : b;
  // Equal values have equal bits, but for the signs of zeros.
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(a) & std::bit_cast<std::uint32_t>(b));
}

struct Larger {
  void operator()(std::span<float> mine, std::span<const float> theirs) const {
    for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = larger(mine[i], theirs[i]);
  }
};

template <typename T>
void sum_arrays(Collectives& collectives, const std::vector<Tensor>& tensors) {
  std::vector<std::span<T>> arrays;
  for (const Tensor& tensor : tensors) {
    if (tensor.dtype() == DTypeOf<T>::value) arrays.push_back(tensor.span<T>());
  }
  collectives.all_reduce(arrays, Add{});
}

bool are_on(Device device, const std::vector<Tensor>& tensors) {
  return std::all_of(tensors.begin(), tensors.end(),
                     [&](const Tensor& tensor) { return tensor.device() == device; });
}

std::vector<Tensor> on_host(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> host;
  for (const Tensor& tensor : tensors) host.push_back(tensor.to(Device::cpu()));
  return host;
}

// Where the host had a copy.
void copy_back(const std::vector<Tensor>& tensors, const std::vector<Tensor>& host) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].shares_storage_with(host[i])) tensors[i].copy_from(host[i]);
  }
}

std::span<std::byte> bytes_of(const Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.raw()), static_cast<std::size_t>(tensor.bytes())};
}

}  // namespace

struct Communicator::Work {
  Job job;
  bool done = false;
  std::exception_ptr error = nullptr;
};

Communicator::Communicator(Connect connect, std::size_t piece_bytes) {
  thread_ = std::thread(
      [this, connect = std::move(connect), piece_bytes] { serve(connect, piece_bytes); });
  try {
    run_job([this](Collectives& collectives) {
      rank_ = collectives.rank();
      size_ = collectives.size();
    });
  } catch (...) {
    thread_.join();
    throw;
  }
}

Communicator::~Communicator() {
  if (thread_.joinable()) stop_thread(false);
}

void Communicator::stop_thread(bool finished) {
  {
    const std::lock_guard lock(mutex_);
    finished_ = finished;
    leaving_ = true;
    if (!finished && transport_ != nullptr) transport_->interrupt();
  }
  changed_.notify_all();
  thread_.join();
}

// The communicator's thread.
void Communicator::serve(const Connect& connect, std::size_t piece_bytes) {
  std::unique_ptr<Transport> transport;
  try {
    transport = connect();
    Collectives collectives(*transport, piece_bytes);
    {
      const std::lock_guard lock(mutex_);
      transport_ = transport.get();
    }
    if (run_jobs(collectives)) transport->finish();
    const std::lock_guard lock(mutex_);
    transport_ = nullptr;
  } catch (...) {
    const std::lock_guard lock(mutex_);
    transport_ = nullptr;
    failure_ = std::current_exception();
    for (const auto& work : queue_) {
      work->error = failure_;
      work->done = true;
    }
    queue_.clear();
    changed_.notify_all();
  }
}

// Kernels that wait for a message wait for ever, and the host with them, unless somebody looks.
void Communicator::check_gpu() {
  if (!gpu_) return;
  const std::string problem = gpu_->check();
  if (!problem.empty()) throw RankLost(problem);
}

// Returns whether all ranks have come to the end.
bool Communicator::run_jobs(Collectives& collectives) {
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto has_work = [&] { return leaving_ || !queue_.empty(); };
    while (!changed_.wait_for(lock, kGpuChecks, has_work)) check_gpu();
    if (leaving_) return finished_;
    const std::shared_ptr<Work> work = queue_.front();
    lock.unlock();
    const auto begin = Clock::now();
    work->job(collectives);  // when it throws, the work is still in the queue
    work->job = nullptr;
    lock.lock();
    queue_.pop_front();
    work->done = true;
    stats_.busy_seconds += seconds_since(begin);
    stats_.bytes_sent = collectives.bytes_sent();
    changed_.notify_all();
  }
}

std::shared_ptr<Communicator::Work> Communicator::start(Job job) {
  auto work = std::make_shared<Work>();
  work->job = std::move(job);
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  if (finished_) throw std::logic_error("[Communicator] used after finish()");
  queue_.push_back(work);
  changed_.notify_all();
  return work;
}

void Communicator::wait(Work& work) {
  const auto begin = Clock::now();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return work.done; });
  stats_.waited_seconds += seconds_since(begin);
  if (work.error) std::rethrow_exception(work.error);
}

Pending Communicator::start_sum(std::vector<Tensor> tensors) {
  for (const Tensor& tensor : tensors) {
    visit_floating(tensor.dtype(), "Communicator::sum", [](auto) {});
  }
  Pending pending;
  if (size_ == 1) return pending;
  if (gpu_ && are_on(gpu_->device(), tensors)) {
    gpu_->start(tensors);
    pending.wait_ = [gpu = gpu_] { gpu->wait(); };
    return pending;
  }
  std::vector<Tensor> host = on_host(tensors);
  const auto work = start([host](Collectives& collectives) {
    sum_arrays<float>(collectives, host);
    sum_arrays<double>(collectives, host);
  });
  pending.wait_ = [this, work, tensors = std::move(tensors), host = std::move(host)] {
    wait(*work);
    copy_back(tensors, host);
  };
  return pending;
}

void Communicator::connect_gpus(Device device, GpuSums sums) {
  if (size_ == 1) return;
  auto gpu = std::make_shared<GpuReducer>(nccl_transport(*this, device), device, sums);
  const std::lock_guard lock(mutex_);
  gpu_ = std::move(gpu);
}

// Bits become values, of which the largest are the bits' disjunction.
std::uint32_t Communicator::max(std::span<float> values, std::uint32_t control) {
  if (size_ == 1) return control;
  std::array<float, 32> bits;
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<float>(control >> i & 1);
  run_job([&](Collectives& collectives) {
    collectives.all_reduce(std::vector<std::span<float>>{values, bits}, Larger{});
  });
  std::uint32_t all = 0;
  for (std::size_t i = 0; i < bits.size(); ++i) all |= std::uint32_t{bits[i] != 0} << i;
  return all;
}

void Communicator::sum(std::span<std::int64_t> counts) {
  if (size_ == 1) return;
  // Unsigned: sums that overflow wrap around.
  const std::span<std::uint64_t> words(reinterpret_cast<std::uint64_t*>(counts.data()),
                                       counts.size());
  run_job([&](Collectives& collectives) { collectives.all_reduce(words, Add{}); });
}

void Communicator::broadcast(std::span<std::byte> bytes, int root) {
  if (root < 0 || root >= size_) {
    throw std::invalid_argument("[Communicator::broadcast] expected a root from 0 to " +
                                std::to_string(size_ - 1) + ", got " + std::to_string(root));
  }
  if (size_ == 1) return;
  run_job([&](Collectives& collectives) { collectives.broadcast(bytes, root); });
}

void Communicator::broadcast(const std::vector<Tensor>& tensors, int root) {
  const std::vector<Tensor> host = on_host(tensors);
  for (const Tensor& tensor : host) broadcast(bytes_of(tensor), root);
  if (rank_ != root) copy_back(tensors, host);
}

std::string Communicator::broadcast(std::string bytes, int root, std::size_t most) {
  std::uint64_t size = bytes.size();
  broadcast(std::as_writable_bytes(std::span(&size, 1)), root);
  if (size_ > 1) require_length(root, size, {.most = most});
  bytes.resize(size);
  broadcast(std::as_writable_bytes(std::span<char>(bytes)), root);
  return bytes;
}

std::vector<std::string> Communicator::gather(std::string_view bytes, std::size_t most) {
  return gather(bytes, Lengths{.most = most});
}

std::vector<std::string> Communicator::gather_equal(std::string_view bytes) {
  return gather(bytes, Lengths{.least = bytes.size(), .most = bytes.size()});
}

std::vector<std::string> Communicator::gather(std::string_view bytes, Lengths lengths) {
  if (size_ == 1) return {std::string(bytes)};
  std::vector<std::string> all;
  run_job([&](Collectives& collectives) { all = collectives.all_gather(bytes, lengths); });
  return all;
}

void Communicator::barrier() {
  std::int64_t nothing = 0;
  sum(std::span(&nothing, 1));
}

void Communicator::finish() {
  barrier();
  if (!thread_.joinable()) return;
  if (gpu_) gpu_->finish();
  stop_thread(true);
  if (failure_) std::rethrow_exception(failure_);
}

CommStats Communicator::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

}  // namespace steelyard::comm
