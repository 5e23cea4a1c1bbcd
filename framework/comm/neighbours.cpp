#include "steelyard/framework/comm/neighbours.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>  // IWYU pragma: keep
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <future>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <utility>

#include "steelyard/framework/comm/greetings.h"
#include "steelyard/framework/comm/sockets.h"
#include "steelyard/framework/tensor/printable.h"

namespace steelyard::comm {
namespace {

// The time for all connections of this rank; one address is tried for kGreetingTime.
constexpr std::chrono::seconds kConnectTime{30};
constexpr std::size_t kMostContactBytes = 65536, kMostMachineBytes = 4096;

// How one rank is found.
struct Contact {
  std::string host;
  int process = 0;
  std::string port;
  std::vector<std::string> addresses;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Contact, host, process, port, addresses)

// What all ranks know of one another before they connect.
struct Directory {
  std::vector<std::string> machines;  // equal where the loopback interface is the same
  std::vector<Contact> contacts;
  Secret secret{};
};

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string machine_name() {
  struct stat network {};
  stat("/proc/self/ns/net", &network);
  const std::string boot = first_line("/proc/sys/kernel/random/boot_id");
  return (boot.empty() ? host_name() : boot) + " " + std::to_string(network.st_ino);
}

// Numeric addresses of the interfaces that are up, without loopback and those of one link only.
std::vector<std::string> own_addresses() {
  std::vector<std::string> addresses;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return addresses;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_UP) == 0) continue;
    if ((one->ifa_flags & IFF_LOOPBACK) != 0) continue;
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (one->ifa_addr->sa_family == AF_INET) {
      const auto* v4 = reinterpret_cast<const sockaddr_in*>(one->ifa_addr);
      inet_ntop(AF_INET, &v4->sin_addr, text.data(), text.size());
    } else if (one->ifa_addr->sa_family == AF_INET6) {
      const auto* v6 = reinterpret_cast<const sockaddr_in6*>(one->ifa_addr);
      if (IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)) continue;
      inet_ntop(AF_INET6, &v6->sin6_addr, text.data(), text.size());
    } else {
      continue;
    }
    addresses.emplace_back(text.data());
  }
  freeifaddrs(all);
  return addresses;
}

std::vector<std::string> machines_of(Communicator& ranks) {
  return ranks.gather(machine_name(), kMostMachineBytes);
}

Contact read_contact(int rank, const std::string& text) {
  try {
    Contact contact = nlohmann::json::parse(text).get<Contact>();
    contact.host = printable(contact.host);
    return contact;
  } catch (const nlohmann::json::exception&) {
    throw std::runtime_error("rank " + std::to_string(rank) +
                             " did not say how it is found, but '" + printable(text) + "'");
  }
}

// Rank 0's becomes that of all.
Secret shared_secret(Communicator& ranks) {
  Secret secret{};
  if (ranks.rank() == 0) secret = new_secret();
  ranks.broadcast(std::as_writable_bytes(std::span(secret)));
  return secret;
}

Directory exchange_contacts(Communicator& ranks, std::vector<std::string> machines,
                            const Socket& listener) {
  Directory directory{std::move(machines), {}, shared_secret(ranks)};
  const Contact own{host_name(), getpid(), port_of(listener), own_addresses()};
  for (const std::string& text : ranks.gather(nlohmann::json(own).dump(), kMostContactBytes)) {
    const int rank = static_cast<int>(directory.contacts.size());
    directory.contacts.push_back(read_contact(rank, text));
  }
  return directory;
}

// Tries the addresses of a rank in turn. Several hosts may have one address, of a bridge say: only
// the right rank answers.
Socket connect_to_rank(int rank, const Directory& directory, int own,
                       SocketClock::time_point last_deadline) {
  const Contact& there = directory.contacts[rank];
  std::vector<std::string> addresses = there.addresses;
  if (directory.machines[rank] == directory.machines[own]) {
    addresses.insert(addresses.begin(), {"127.0.0.1", "::1"});
  }
  std::string tried;
  for (const std::string& address : addresses) {
    const auto deadline = std::min(last_deadline, SocketClock::now() + kGreetingTime);
    if (SocketClock::now() >= last_deadline) break;
    Socket fd = connect_to(address, there.port, deadline);
    const std::string reason = fd ? "it does not answer as that rank" : std::strerror(errno);
    if (fd && greet_rank(fd, directory.secret, own, rank, deadline)) return fd;
    tried += (tried.empty() ? "" : ", ") + printable(address) + " port " + printable(there.port) +
             " (" + reason + ")";
  }
  throw std::runtime_error("rank " + std::to_string(own) + " on " + directory.contacts[own].host +
                           " cannot reach rank " + std::to_string(rank) + " on " + there.host +
                           " over TCP: " + (tried.empty() ? "it has no address" : tried));
}

// One side of each pair connects, the other accepts; both at the same time.
std::map<int, Socket> connect_pairs(const Socket& listener, const Directory& directory, int own) {
  const int ranks = static_cast<int>(directory.contacts.size());
  const auto deadline = SocketClock::now() + kConnectTime;
  std::set<int> awaited;
  for (int distance = 1; distance < ranks; distance *= 2) {
    if ((own & distance) == 0) awaited.insert(own | distance);
  }
  const auto note = [&](const std::string& text) {
    const std::string line = "note: rank " + std::to_string(own) + " on " +
                             directory.contacts[own].host + ": " + text + "\n";
    std::fputs(line.c_str(), stderr);
  };
  auto accepted = std::async(std::launch::async, [&] {
    return admit_ranks(listener, directory.secret, own, awaited, deadline, note);
  });
  std::map<int, Socket> sockets;
  for (int distance = 1; distance < ranks; distance *= 2) {
    const int rank = own ^ distance;
    if (rank < own) sockets[rank] = connect_to_rank(rank, directory, own, deadline);
  }
  sockets.merge(accepted.get());
  return sockets;
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

int rank_on_machine(Communicator& ranks) {
  const std::vector<std::string> machines = machines_of(ranks);
  const auto own = machines.begin() + ranks.rank();
  return static_cast<int>(std::count(machines.begin(), own, *own));
}

std::vector<Neighbour> connect_neighbours(Communicator& ranks) {
  std::vector<std::string> machines = machines_of(ranks);
  const bool one_machine =
      std::count(machines.begin(), machines.end(), machines[0]) == ranks.size();
  const Socket listener = one_machine ? listen_on_loopback() : listen_on_all_interfaces();
  const Directory directory = exchange_contacts(ranks, std::move(machines), listener);
  std::map<int, Socket> sockets;
  std::string problem;
  try {
    sockets = connect_pairs(listener, directory, ranks.rank());
  } catch (const std::runtime_error& error) {
    problem = error.what();
  }
  for (const std::string& text : ranks.gather(problem)) {
    if (!text.empty()) throw std::runtime_error(text);
  }
  std::vector<Neighbour> neighbours;
  for (int distance = 1; distance < ranks.size(); distance *= 2) {
    const int rank = ranks.rank() ^ distance;
    const int yes = 1;
    setsockopt(sockets[rank].get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    const Contact& contact = directory.contacts[rank];
    neighbours.push_back({rank, contact.host, contact.process, sockets[rank].release()});
  }
  return neighbours;
}

}  // namespace steelyard::comm
