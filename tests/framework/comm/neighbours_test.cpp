// Connections between ranks while others connect too, who are no ranks.
#include "steelyard/framework/comm/neighbours.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <mutex>

#include "steelyard/framework/comm/greetings.h"
#include "steelyard/framework/comm/threads.h"

namespace steelyard::comm {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::SizeIs;

sockaddr_storage address_of(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return address;
}

bool is_loopback(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET6) {
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
  }
  return reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr == htonl(INADDR_LOOPBACK);
}

Socket connected(const Socket& listener) {
  return connect_to("127.0.0.1", port_of(listener), SocketClock::now() + std::chrono::seconds(10));
}

// A connection that sends what no rank would. It stays open.
Socket stranger(const Socket& listener, const std::string& bytes) {
  Socket socket = connected(listener);
  EXPECT_TRUE(socket);
  // The system takes as many of the bytes as it can: nobody reads them.
  if (!bytes.empty()) send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  return socket;
}

// What happens at each socket of this process when it begins to listen, before a rank hears of it.
std::mutex mutex;
std::function<void(int listener)> on_listen;

class AtEachListener {
 public:
  explicit AtEachListener(std::function<void(int)> call) { on_listen = std::move(call); }
  ~AtEachListener() { on_listen = nullptr; }
};

}  // namespace
}  // namespace steelyard::comm

// In place of the C library's.
extern "C" int listen(int fd, int backlog) noexcept {
  const auto result = static_cast<int>(syscall(SYS_listen, fd, backlog));
  const std::lock_guard lock(steelyard::comm::mutex);
  if (steelyard::comm::on_listen) steelyard::comm::on_listen(fd);
  return result;
}

namespace steelyard::comm {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

struct StrangersCase {
  std::string name;
  int count;
  std::string bytes;
};

class Strangers : public ::testing::TestWithParam<StrangersCase> {};

TEST_P(Strangers, NeitherFailNorDelayAStart) {
  std::vector<Socket> strangers;
  const AtEachListener come([&](int fd) {
    Socket listener(fd);
    for (int i = 0; i < GetParam().count; ++i) {
      strangers.push_back(stranger(listener, GetParam().bytes));
    }
    listener.release();
  });
  ::testing::internal::CaptureStderr();
  const auto begin = SocketClock::now();
  run_as_ranks(4, [](Communicator& ranks) {
    const std::vector<Neighbour> neighbours = connect_neighbours(ranks);
    EXPECT_THAT(neighbours, SizeIs(2));
    // The right ones: each hears its neighbour's number.
    for (const Neighbour& neighbour : neighbours) {
      const int own = ranks.rank();
      EXPECT_EQ(send(neighbour.socket, &own, sizeof own, 0), sizeof own);
    }
    for (const Neighbour& neighbour : neighbours) {
      Socket socket(neighbour.socket);
      int other = -1;
      EXPECT_TRUE(
          receive_all(socket, &other, sizeof other, SocketClock::now() + std::chrono::seconds(10)));
      EXPECT_EQ(other, neighbour.rank);
    }
  });
  const auto notes = lines_of(::testing::internal::GetCapturedStderr());
  EXPECT_LT(SocketClock::now() - begin, kGreetingTime);
  EXPECT_THAT(strangers, SizeIs(4 * GetParam().count));
  EXPECT_THAT(notes, Each(AllOf(HasSubstr("note: rank "), HasSubstr("a connection from 127.0.0.1"),
                                HasSubstr("is not of this run"))));
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_LE(std::count_if(notes.begin(), notes.end(),
                            [&](const std::string& note) {
                              return note.starts_with("note: rank " + std::to_string(rank));
                            }),
              1);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Neighbours, Strangers,
    ::testing::Values(StrangersCase{"OneIsSilent", 1, ""}, StrangersCase{"ManyAreSilent", 100, ""},
                      StrangersCase{"HalfAGreeting", 3, std::string(sizeof(Greeting) / 2, 'x')},
                      StrangersCase{"Garbage", 3, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"},
                      StrangersCase{"TooMuch", 3, std::string(1 << 20, 'x')}),
    [](const auto& strangers) { return strangers.param.name; });

TEST(Neighbours, ListenOnTheLoopbackAloneWhereAllRanksShareAMachine) {
  std::vector<bool> loopback;
  const AtEachListener look([&](int fd) { loopback.push_back(is_loopback(address_of(fd))); });
  run_as_ranks(2, [](Communicator& ranks) {
    for (const Neighbour& neighbour : connect_neighbours(ranks)) close(neighbour.socket);
  });
  EXPECT_THAT(loopback, ElementsAre(true, true));
}

TEST(Neighbours, ThreadsAreRanksOfOneMachine) {
  run_as_ranks(4, [](Communicator& ranks) { EXPECT_EQ(rank_on_machine(ranks), ranks.rank()); });
}

TEST(Greeting, OnlyWhoHasTheSecretMakesOne) {
  const Secret secret = new_secret();
  const Greeting greeting = make_greeting(secret, 3, 2);
  EXPECT_TRUE(is_of_run(greeting, secret));
  EXPECT_FALSE(is_of_run(greeting, new_secret()));
  Greeting other = greeting;
  other.from = 1;
  EXPECT_FALSE(is_of_run(other, secret));
  other = greeting;
  std::swap(other.from, other.to);
  EXPECT_FALSE(is_of_run(other, secret));
  for (std::size_t i = 0; i < greeting.proof.size(); ++i) {
    other = greeting;
    other.proof[i] ^= 1;
    EXPECT_FALSE(is_of_run(other, secret)) << i;
  }
}

// The ranks that rank 2 admits after the connections that `come` makes, and what it says.
struct Admitted {
  std::map<int, Socket> ranks;
  std::vector<std::string> notes;
};

Admitted admitted_by_rank_2(const Secret& secret, std::set<int> awaited,
                            std::chrono::milliseconds time,
                            const std::function<void(const Socket& listener)>& come) {
  const Socket listener = listen_on_loopback();
  Admitted admitted;
  auto admission = std::async(std::launch::async, [&] {
    return admit_ranks(listener, secret, 2, std::move(awaited), SocketClock::now() + time,
                       [&](const std::string& note) { admitted.notes.push_back(note); });
  });
  come(listener);
  admitted.ranks = admission.get();
  return admitted;
}

bool greets(const Socket& listener, const Secret& secret, int own, int rank) {
  return greet_rank(connected(listener), secret, own, rank,
                    SocketClock::now() + std::chrono::seconds(10));
}

TEST(AdmitRanks, RefusesARankOfAnotherRun) {
  const Secret secret = new_secret();
  const auto [ranks, notes] =
      admitted_by_rank_2(secret, {3}, std::chrono::seconds(10), [&](const Socket& listener) {
        EXPECT_FALSE(greets(listener, new_secret(), 3, 2));
        EXPECT_FALSE(greets(listener, new_secret(), 3, 2));
        EXPECT_TRUE(greets(listener, secret, 3, 2));
      });
  EXPECT_THAT(ranks, ElementsAre(Key(3)));
  EXPECT_THAT(notes, ElementsAre(HasSubstr("it does not know the run's secret")));
}

TEST(AdmitRanks, ARankThatLooksForAnotherIsNoStranger) {
  const Secret secret = new_secret();
  const auto [ranks, notes] =
      admitted_by_rank_2(secret, {3, 6}, std::chrono::seconds(10), [&](const Socket& listener) {
        EXPECT_FALSE(greets(listener, secret, 3, 1));  // it looks for rank 1
        EXPECT_FALSE(greets(listener, secret, 0, 2));  // is to be connected to
        EXPECT_TRUE(greets(listener, secret, 3, 2));
        EXPECT_FALSE(greets(listener, secret, 3, 2));  // has come
        EXPECT_TRUE(greets(listener, secret, 6, 2));
      });
  EXPECT_THAT(ranks, ElementsAre(Key(3), Key(6)));
  EXPECT_THAT(notes, IsEmpty());
}

TEST(AdmitRanks, AGreetingInPiecesIsOne) {
  const Secret secret = new_secret();
  const Greeting greeting = make_greeting(secret, 3, 2);
  Socket connection;
  const auto [ranks, notes] =
      admitted_by_rank_2(secret, {3}, std::chrono::seconds(10), [&](const Socket& listener) {
        connection = connected(listener);
        for (std::size_t i = 0; i < sizeof greeting; ++i) {
          EXPECT_TRUE(send_all(connection, reinterpret_cast<const char*>(&greeting) + i, 1));
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
      });
  EXPECT_THAT(ranks, ElementsAre(Key(3)));
  EXPECT_THAT(notes, IsEmpty());
}

TEST(AdmitRanks, SaysWhatTheFirstStrangerDidAndEndsAtTheDeadline) {
  const auto half_and_end = [](const Socket& listener) { stranger(listener, "12345"); };
  const auto [ranks, notes] =
      admitted_by_rank_2(new_secret(), {3}, std::chrono::milliseconds(300), half_and_end);
  EXPECT_THAT(ranks, IsEmpty());
  EXPECT_THAT(notes, ElementsAre(AllOf(HasSubstr("a connection from 127.0.0.1 port "),
                                       HasSubstr("it sent 5 of the 40 bytes of a greeting and "
                                                 "ended"))));
}

TEST(AdmitRanks, ASilentStrangerLeavesAfterItsTime) {
  Socket silent;
  const auto [ranks, notes] =
      admitted_by_rank_2(new_secret(), {3}, kGreetingTime + std::chrono::seconds(1),
                         [&](const Socket& listener) { silent = stranger(listener, "12345"); });
  EXPECT_THAT(ranks, IsEmpty());
  EXPECT_THAT(notes, ElementsAre(HasSubstr("it sent 5 of the 40 bytes of a greeting in 3 s")));
}

}  // namespace
}  // namespace steelyard::comm
