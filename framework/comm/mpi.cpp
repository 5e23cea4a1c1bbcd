#include "steelyard/framework/comm/mpi.h"

// The deprecated C++ functions of older headers would need a library of their own.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

#include "steelyard/framework/comm/communicator.h"
#include "steelyard/framework/comm/prompt_thread.h"
#include "steelyard/framework/comm/signals.h"

namespace steelyard::comm {
namespace {

std::string error_text(int code) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  return {text.data(), static_cast<std::size_t>(length)};
}

// The watchdog knows which rank was lost, and ends the process before this throws.
constexpr std::chrono::seconds kWatchdogTime{10};

void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  const std::string what = std::string(call) + ": " + error_text(code);
  std::this_thread::sleep_for(kWatchdogTime);
  throw RankLost(what);
}

int class_of(int code) {
  int kind = code;
  MPI_Error_class(code, &kind);
  return kind;
}

bool is_truncated(const MPI_Status& status) {
  return class_of(status.MPI_ERROR) == MPI_ERR_TRUNCATE;
}

// MPI's own waits ask again and again without a pause, which takes the processor from threads
// that compute. Here a wait is slept through, an eighth of the time waited so far at once: by so
// much a message may be seen late, and where processors are shared, a thread that slept is served
// before one that yielded.
class Wait {
 public:
  void pause() {
    const auto waited = std::chrono::steady_clock::now() - begin_;
    if (waited < kLeast) return;
    std::this_thread::sleep_for(std::clamp<std::chrono::nanoseconds>(waited / 8, kLeast, kMost));
  }

 private:
  static constexpr std::chrono::microseconds kLeast{10}, kMost{200};
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// Makes Open MPI send a message over TCP at once, up to half a piece of a sum and its header.
// Larger ones ask first, and where two ranks send to one another, the answer that one waits for
// stands after the bytes of the other: one direction at a time.
void send_at_once() {
  const std::string bytes = std::to_string(Communicator::kPieceBytes / 2 + 4096);
  for (const char* limit : {"eager_limit", "rndv_eager_limit", "max_send_size"}) {
    setenv((std::string("OMPI_MCA_btl_tcp_") + limit).c_str(), bytes.c_str(), 0);
  }
}

// Makes Open MPI's ranks exchange messages in shared memory if mpirun has started all of them on
// this machine: otherwise they listen on every interface.
void stay_on_this_machine() {
  const char* here = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  const char* all = std::getenv("OMPI_COMM_WORLD_SIZE");
  if (here != nullptr && all != nullptr && std::string_view(here) == all) {
    setenv("OMPI_MCA_btl", "^tcp,ofi", 0);
  }
}

class MpiTransport : public Transport {
 public:
  MpiTransport() {
    // Open MPI writes to connections of ranks that were lost: the signal would end the process
    // before the watchdog has said which. The threads that MPI starts inherit this.
    block_sigpipe();
    run_promptly();
    // Makes Open MPI yield inside MPI_Init and MPI_Finalize, which wait for all ranks.
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
    send_at_once();
    stay_on_this_machine();
    int provided = MPI_THREAD_SINGLE;
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
    if (provided < MPI_THREAD_FUNNELED) {
      throw std::runtime_error("MPI supports no program that has threads");
    }
    check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void exchange(int peer, std::span<const std::byte> send, std::span<std::byte> receive) override;
  void interrupt() override { interrupted_ = true; }
  void finish() override { check(MPI_Finalize(), "MPI_Finalize"); }

 private:
  std::atomic<bool> interrupted_ = false;
  int rank_ = 0, size_ = 1;
};

void MpiTransport::exchange(int peer, std::span<const std::byte> send,
                            std::span<std::byte> receive) {
  std::array<MPI_Request, 2> requests{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  if (!receive.empty()) {
    check(MPI_Irecv(receive.data(), static_cast<int>(receive.size()), MPI_BYTE, peer, 0,
                    MPI_COMM_WORLD, &requests[0]),
          "MPI_Irecv");
  }
  if (!send.empty()) {
    check(MPI_Isend(send.data(), static_cast<int>(send.size()), MPI_BYTE, peer, 0, MPI_COMM_WORLD,
                    &requests[1]),
          "MPI_Isend");
  }
  std::array<MPI_Status, 2> statuses{};
  Wait wait;
  for (int done = 0; done == 0;) {
    const int code = MPI_Testall(2, requests.data(), &done, statuses.data());
    if (code != MPI_SUCCESS && class_of(code) == MPI_ERR_IN_STATUS && is_truncated(statuses[0])) {
      throw std::logic_error("rank " + std::to_string(rank_) + " expected no more than " +
                             std::to_string(receive.size()) + " bytes from rank " +
                             std::to_string(peer));
    }
    check(code, "MPI_Testall");
    if (interrupted_) throw RankLost("this rank leaves");
    if (done == 0) wait.pause();
  }
  int received = 0;
  if (!receive.empty()) check(MPI_Get_count(&statuses[0], MPI_BYTE, &received), "MPI_Get_count");
  if (static_cast<std::size_t>(received) != receive.size()) {
    throw std::logic_error("rank " + std::to_string(rank_) + " expected " +
                           std::to_string(receive.size()) + " bytes from rank " +
                           std::to_string(peer) + ", got " + std::to_string(received));
  }
}

}  // namespace

std::string mpi_name() {
#ifdef OMPI_MAJOR_VERSION
  return "Open MPI " + std::to_string(OMPI_MAJOR_VERSION) + "." +
         std::to_string(OMPI_MINOR_VERSION) + "." + std::to_string(OMPI_RELEASE_VERSION);
#else
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  const std::string name(text.data(), static_cast<std::size_t>(length));
  return name.substr(0, name.find('\n'));
#endif
}

std::unique_ptr<Transport> mpi_transport() { return std::make_unique<MpiTransport>(); }

}  // namespace steelyard::comm
