// The scheduler. A pass over the block resumes every thread that does not wait, in the chosen
// order; when a pass ends with all threads waiting, the barrier opens or the block is stuck.
//
// A fiber starts one thread after another and holds on to one only when it waits. So a kernel
// without barriers runs on a single fiber, without switching stacks.
#include "tests/support/cuda_emulation/scheduler.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <limits>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/cuda_emulation/emulation.h"
#include "tests/support/cuda_emulation/fiber.h"
#include "tests/support/cuda_emulation/shared_memory.h"
#include "tests/support/cuda_emulation/stuck.h"

namespace steelyard::emulation {

Coordinates coordinates;
std::uint64_t blocks_begun = 0;

namespace {

// Thrown into waiting threads to unwind their stacks when the block has failed.
struct Abandoned {};

class Scheduler {
 public:
  void run(const Grid& grid, const std::function<void()>& body);
  std::uint64_t wait(const Request& request);
  std::byte* shared() const { return shared_.data(); }

 private:
  void run_block();
  void pass();
  void abandon();
  void draw_thread_order();
  void resume(int thread);
  void release_barrier();
  void release_warp(unsigned lane);
  static void fiber_main();
  void start_threads();
  bool next_is_unstarted() const {
    return !error_ && cursor_ < order_.size() &&
           threads_[static_cast<std::size_t>(order_[cursor_])].state == ThreadState::kUnstarted;
  }

  const std::function<void()>* body_ = nullptr;
  SharedMemory shared_;
  std::mt19937 random_;
  std::vector<Thread> threads_;
  std::vector<Fiber*> fibers_;  // that run `threads_`, where those wait
  std::vector<Fiber*> idle_;    // without a thread
  std::vector<int> order_;
  std::size_t cursor_ = 0;       // into order_
  std::vector<unsigned> warps_;  // each warp's lanes that wait at a warp collective
  std::size_t current_ = 0;      // the running thread
  std::size_t exited_ = 0;
  std::size_t at_barrier_ = 0;
  bool released_ = false;  // some thread stopped waiting during this pass
  bool abandoning_ = false;
  std::exception_ptr error_;
};

// Never destroyed: fibers stay suspended on their stacks until the process ends.
Scheduler& scheduler() {
  static Scheduler& instance = *new Scheduler;
  return instance;
}

// Puts 0, 1, ... into `order` as the options ask.
template <typename Index>
void draw(std::vector<Index>& order, std::mt19937& random) {
  std::iota(order.begin(), order.end(), Index{0});
  if (options().order == Order::kReverse) std::reverse(order.begin(), order.end());
  if (options().order == Order::kRandom) std::shuffle(order.begin(), order.end(), random);
}

std::string block_name() { return "block " + std::to_string(coordinates.block.x); }

void check_grid(const Grid& grid) {
  if (grid.blocks < 0 || grid.blocks > std::numeric_limits<int>::max()) {
    throw std::logic_error("a grid can not have " + std::to_string(grid.blocks) + " blocks");
  }
  if (grid.threads < 1 || grid.threads > 1024) {
    throw std::logic_error("a block can not have " + std::to_string(grid.threads) + " threads");
  }
  if (grid.shared_bytes > options().shared_limit) {
    throw std::logic_error("a block can not have " + std::to_string(grid.shared_bytes) +
                           " bytes of shared memory, the limit is " +
                           std::to_string(options().shared_limit));
  }
}

void Scheduler::run(const Grid& grid, const std::function<void()>& body) {
  const auto threads = static_cast<std::size_t>(grid.threads);
  body_ = &body;
  random_.seed(options().seed);
  threads_.resize(threads);
  fibers_.resize(threads);
  order_.resize(threads);
  warps_.resize((threads + kWarpSize - 1) / kWarpSize);
  coordinates.block_size = {static_cast<unsigned>(grid.threads)};
  coordinates.grid_size = {static_cast<unsigned>(grid.blocks)};
  std::vector<unsigned> blocks(static_cast<std::size_t>(grid.blocks));
  draw(blocks, random_);
  for (const unsigned block : blocks) {
    coordinates.block = {block, 0, 0};
    shared_.reset(grid.shared_bytes, options().poison);
    run_block();
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
    if (const std::string damage = shared_.damage(); !damage.empty()) {
      throw std::logic_error(block_name() + " " + damage);
    }
  }
}

void Scheduler::run_block() {
  for (Thread& thread : threads_) thread.state = ThreadState::kUnstarted;
  std::fill(warps_.begin(), warps_.end(), 0U);
  exited_ = at_barrier_ = 0;
  ++blocks_begun;
  draw(order_, random_);
  while (!error_) {
    pass();
    if (exited_ == threads_.size()) return;
    if (!released_ && !error_) release_barrier();
  }
  abandon();
}

void Scheduler::pass() {
  released_ = false;
  cursor_ = 0;
  while (cursor_ < order_.size() && !error_) {
    if (next_is_unstarted()) {
      if (idle_.empty()) idle_.push_back(new Fiber(&Scheduler::fiber_main));
      Fiber* fiber = idle_.back();
      idle_.pop_back();
      fiber->resume();
      continue;
    }
    const int thread = order_[cursor_++];
    if (threads_[static_cast<std::size_t>(thread)].state == ThreadState::kReady) resume(thread);
  }
}

void Scheduler::resume(int thread) {
  current_ = static_cast<std::size_t>(thread);
  coordinates.thread = {static_cast<unsigned>(thread), 0, 0};
  fibers_[current_]->resume();
}

void Scheduler::abandon() {
  abandoning_ = true;
  for (std::size_t i = 0; i < threads_.size(); ++i) {
    const ThreadState state = threads_[i].state;
    if (state != ThreadState::kUnstarted && state != ThreadState::kExited) {
      resume(static_cast<int>(i));
    }
  }
  abandoning_ = false;
}

void Scheduler::fiber_main() {
  for (;;) {
    scheduler().start_threads();
    scheduler().idle_.push_back(Fiber::active());
    Fiber::suspend();
  }
}

void Scheduler::start_threads() {
  while (next_is_unstarted()) {
    const auto self = static_cast<std::size_t>(order_[cursor_++]);
    current_ = self;
    coordinates.thread = {static_cast<unsigned>(self), 0, 0};
    try {
      (*body_)();
    } catch (const Abandoned&) {
    } catch (...) {
      if (!error_) error_ = std::current_exception();
    }
    threads_[self].state = ThreadState::kExited;
    ++exited_;
  }
}

std::uint64_t Scheduler::wait(const Request& request) {
  if (abandoning_) throw Abandoned{};
  const std::size_t self = current_;
  const auto lane = static_cast<unsigned>(self % kWarpSize);
  if (!is_block_wide(request.kind)) check_warp_request(request, lane);
  Thread& thread = threads_[self];
  thread.request = request;
  fibers_[self] = Fiber::active();
  if (is_block_wide(request.kind)) {
    thread.state = ThreadState::kAtBarrier;
    ++at_barrier_;
  } else {
    thread.state = ThreadState::kAtWarpCollective;
    warps_[self / kWarpSize] |= 1U << lane;
    release_warp(lane);
  }
  Fiber::suspend();
  if (abandoning_) throw Abandoned{};
  thread.state = ThreadState::kRunning;
  return thread.result;
}

void Scheduler::release_barrier() {
  const Request& first = threads_.front().request;
  const bool together = at_barrier_ == threads_.size() &&
                        std::all_of(threads_.begin(), threads_.end(), [&](const Thread& thread) {
                          return same_block_call(thread.request, first);
                        });
  if (!together) {
    error_ = std::make_exception_ptr(std::logic_error(block_name() + ": " + why_stuck(threads_)));
    return;
  }
  const auto count = std::count_if(threads_.begin(), threads_.end(),
                                   [](const Thread& thread) { return thread.request.value != 0; });
  const std::uint64_t result =
      block_result(first.kind, static_cast<int>(count), static_cast<int>(threads_.size()));
  for (Thread& thread : threads_) {
    thread.result = result;
    thread.state = ThreadState::kReady;
  }
  at_barrier_ = 0;
  if (options().order == Order::kRandom) draw(order_, random_);
}

// Lets the lanes of the current thread's call go on if all of them have come.
void Scheduler::release_warp(unsigned lane) {
  const std::size_t first = current_ - lane;
  const Request& call = threads_[current_].request;
  const unsigned members = call.mask & existing_lanes(threads_.size(), first);
  unsigned& waiting = warps_[first / kWarpSize];
  if ((waiting & members) != members) return;
  WarpRequests requests{};
  for (unsigned i = 0; i < kWarpSize; ++i) {
    if ((members >> i & 1U) == 0) continue;
    requests[i] = &threads_[first + i].request;
    if (!same_warp_call(*requests[i], call)) return;
  }
  for (unsigned i = 0; i < kWarpSize; ++i) {
    if ((members >> i & 1U) == 0) continue;
    threads_[first + i].result = warp_result(requests, members, i, options().poison);
    threads_[first + i].state = ThreadState::kReady;
  }
  waiting &= ~members;
  released_ = true;
}

std::atomic_flag running;

struct RunningScope {
  RunningScope() {
    if (running.test_and_set()) {
      throw std::logic_error("emulated kernels run one at a time and launch no others");
    }
  }
  ~RunningScope() { running.clear(); }
};

}  // namespace

void run_grid(const Grid& grid, const std::function<void()>& body) {
  const RunningScope scope;
  if (grid.blocks == 0) return;
  check_grid(grid);
  scheduler().run(grid, body);
}

std::uint64_t collective(const Request& request) {
  if (Fiber::active() == nullptr) {
    throw std::logic_error("only kernels wait for other threads: " + describe(request));
  }
  return scheduler().wait(request);
}

std::byte* shared_memory() { return scheduler().shared(); }

}  // namespace steelyard::emulation
