// Operations are carried out when their group ends, after what the stream holds: a device that is
// never late. Work that they should have waited for, on another stream, is late where the
// emulation's options defer it.
#include "tests/support/cuda_emulation/nccl.h"

#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/cuda_emulation/device_memory.h"
#include "tests/support/cuda_emulation/queued_work.h"

struct Clique;

struct ncclComm {
  Clique* clique;
  int rank;
  int ranks;

  void put(int peer, const void* data, std::size_t bytes);
  ncclResult_t take(int peer, std::vector<std::byte>& message);
  ncclResult_t take(int peer, void* to, std::size_t bytes);
};

using Bytes = std::vector<std::byte>;

// The ranks that share an id. Never freed: other threads may use what one ends.
struct Clique {
  std::mutex mutex;
  std::condition_variable changed;
  std::set<int> joined;
  std::map<std::pair<int, int>, std::deque<Bytes>> messages;  // by sender and receiver
  std::vector<std::unique_ptr<ncclComm>> comms;
  bool failed = false;  // one has left
};

namespace {

struct Operation {
  ncclComm_t comm;
  cudaStream_t stream;
  int peer;
  const void* send;  // null: a receive
  void* receive;
  std::size_t bytes;
};

thread_local int group_depth = 0;
thread_local std::vector<Operation> group;

Clique& clique_of(const std::string& id) {
  static std::mutex mutex;
  static auto* cliques = new std::map<std::string, std::unique_ptr<Clique>>();
  const std::lock_guard lock(mutex);
  auto& clique = (*cliques)[id];
  if (!clique) clique = std::make_unique<Clique>();
  return *clique;
}

std::size_t size_of(ncclDataType_t type) {
  return type == ncclFloat64 ? 8 : type == ncclFloat32 ? 4 : 1;
}

template <typename T>
void add_bytes(Bytes& sum, const Bytes& more) {
  for (std::size_t at = 0; at < sum.size(); at += sizeof(T)) {
    T a, b;
    std::memcpy(&a, sum.data() + at, sizeof(T));
    std::memcpy(&b, more.data() + at, sizeof(T));
    a += b;
    std::memcpy(sum.data() + at, &a, sizeof(T));
  }
}

}  // namespace

void ncclComm::put(int peer, const void* data, std::size_t bytes) {
  steelyard::emulation::require_device_pointer(data, 0);
  const steelyard::emulation::DeviceAccess access;
  const auto* begin = static_cast<const std::byte*>(data);
  const std::lock_guard lock(clique->mutex);
  clique->messages[{rank, peer}].emplace_back(begin, begin + bytes);
  clique->changed.notify_all();
}
ncclResult_t ncclComm::take(int peer, Bytes& message) {
  std::unique_lock lock(clique->mutex);
  auto& messages = clique->messages[{peer, rank}];
  clique->changed.wait(lock, [&] { return clique->failed || !messages.empty(); });
  if (messages.empty()) return ncclRemoteError;
  message = std::move(messages.front());
  messages.pop_front();
  return ncclSuccess;
}
ncclResult_t ncclComm::take(int peer, void* to, std::size_t bytes) {
  steelyard::emulation::require_device_pointer(to, 0);
  Bytes message;
  const ncclResult_t result = take(peer, message);
  if (result != ncclSuccess) return result;
  if (message.size() != bytes) return ncclInvalidArgument;
  const steelyard::emulation::DeviceAccess access;
  std::memcpy(to, message.data(), bytes);
  return ncclSuccess;
}

ncclResult_t ncclGetVersion(int* version) {
  *version = 22803;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInvalidArgument:
      return "invalid argument";
    default:
      return "internal error";
  }
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::mutex mutex;
  static int last = 0;
  const std::lock_guard lock(mutex);
  std::memset(id->internal, 0, sizeof id->internal);
  const std::string text = "clique " + std::to_string(++last);
  std::memcpy(id->internal, text.data(), text.size());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  Clique& clique = clique_of(std::string(id.internal, sizeof id.internal));
  std::unique_lock lock(clique.mutex);
  if (!clique.joined.insert(rank).second) return ncclInvalidArgument;
  clique.changed.notify_all();
  clique.changed.wait(lock, [&] { return static_cast<int>(clique.joined.size()) == ranks; });
  clique.comms.push_back(std::make_unique<ncclComm>(ncclComm{&clique, rank, ranks}));
  *comm = clique.comms.back().get();
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t) { return ncclSuccess; }

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const std::lock_guard lock(comm->clique->mutex);
  comm->clique->failed = true;
  comm->clique->changed.notify_all();
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  const std::lock_guard lock(comm->clique->mutex);
  *error = comm->clique->failed ? ncclRemoteError : ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (group_depth == 0) return ncclInvalidArgument;
  if (--group_depth > 0) return ncclSuccess;
  const std::vector<Operation> operations = std::exchange(group, {});
  for (const Operation& one : operations) {
    steelyard::emulation::finish(one.stream);
    if (one.send != nullptr) one.comm->put(one.peer, one.send, one.bytes);
  }
  for (const Operation& one : operations) {
    if (one.send != nullptr) continue;
    const ncclResult_t result = one.comm->take(one.peer, one.receive, one.bytes);
    if (result != ncclSuccess) return result;
  }
  return ncclSuccess;
}

ncclResult_t ncclSend(const void* data, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  ncclGroupStart();
  group.push_back({comm, stream, peer, data, nullptr, count * size_of(type)});
  return ncclGroupEnd();
}

ncclResult_t ncclRecv(void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  ncclGroupStart();
  group.push_back({comm, stream, peer, nullptr, data, count * size_of(type)});
  return ncclGroupEnd();
}

// One rank after another, as in a ring: another order than the tree's.
ncclResult_t ncclAllReduce(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t, ncclComm_t comm, cudaStream_t stream) {
  steelyard::emulation::finish(stream);
  const std::size_t bytes = count * size_of(type);
  for (int rank = 0; rank < comm->ranks; ++rank) comm->put(rank, send, bytes);
  Bytes sum;
  for (int rank = 0; rank < comm->ranks; ++rank) {
    Bytes message;
    const ncclResult_t result = comm->take(rank, message);
    if (result != ncclSuccess) return result;
    if (message.size() != bytes) return ncclInvalidArgument;
    if (rank == 0) {
      sum = std::move(message);
    } else if (type == ncclFloat64) {
      add_bytes<double>(sum, message);
    } else {
      add_bytes<float>(sum, message);
    }
  }
  const steelyard::emulation::DeviceAccess access;
  std::memcpy(receive, sum.data(), bytes);
  return ncclSuccess;
}
