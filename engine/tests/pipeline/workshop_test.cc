#include "millstream/loader/workshop.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <latch>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "millstream/core/error.h"
#include "millstream/workers/thread_crew.h"

namespace millstream {
namespace {

constexpr auto kLong = std::chrono::minutes(1);
const Schema kSchema = {{"x", DType::kInt64, {}}};

using Part = std::function<void(const Work& part)>;

std::shared_ptr<Maker> crew_of(Part each, int workers = 2) {
  ThreadCrew::Function function;
  function.make = [each = std::move(each)](const Work& part, std::atomic<std::int64_t>&,
                                           const std::shared_ptr<const void>&) {
    each(part);
  };
  function.whereabouts = [](std::uint64_t) { return std::string(); };
  return std::make_shared<ThreadCrew>(std::move(function), workers,
                                      std::chrono::milliseconds(0));
}

void tenfold(const Work& part) {
  for (std::int64_t k = 0; k < part.rows(); ++k) {
    const auto row = static_cast<std::size_t>(k);
    const std::int64_t value =
        part.indices[row] * 10 +
        (part.seeds.empty() ? 0 : static_cast<std::int64_t>(part.seeds[row]));
    std::memcpy(part.output[0].row(k), &value, sizeof(value));
  }
}

std::int64_t value(const Batch& batch, std::int64_t row) {
  std::int64_t result;
  std::memcpy(&result, batch.columns()[0].row(row), sizeof(result));
  return result;
}

TEST(Workshop, MakesWhatIsNamedAndMasksTheRest) {
  Workshop shop(crew_of(tenfold), kSchema, 4, 2);
  EXPECT_EQ(shop.rows(), 4);
  const auto full = shop.begin({5, 6, 5, 0}, {1, 2, 3, 4})->wait(kLong);
  EXPECT_EQ(value(*full, 0), 51);
  EXPECT_EQ(value(*full, 2), 53);
  EXPECT_EQ(value(*full, 3), 4);
  EXPECT_TRUE(full->mask()[3]);
  const auto part = shop.begin({7}, {})->wait(kLong);
  EXPECT_EQ(value(*part, 0), 70);
  EXPECT_TRUE(part->mask()[0]);
  EXPECT_FALSE(part->mask()[1]);
  const auto none = shop.begin({}, {})->wait(kLong);
  EXPECT_FALSE(none->mask()[0]);
  EXPECT_EQ(shop.live(), 3);
}

TEST(Workshop, GivesBatchesToTheMakerInTheirOrder) {
  std::vector<std::int64_t> seen;
  std::mutex mutex;
  Workshop shop(crew_of(
                    [&](const Work& part) {
                      const std::lock_guard lock(mutex);
                      seen.push_back(part.indices[0]);
                    },
                    1),
                kSchema, 1, 1);
  std::vector<std::shared_ptr<const Ticket>> tickets;
  std::vector<std::int64_t> expected;
  for (std::int64_t i = 0; i < 50; ++i) {
    expected.push_back(i);
    tickets.push_back(shop.begin({i}, {}));
  }
  for (const auto& ticket : tickets) ASSERT_NE(ticket->wait(kLong), nullptr);
  EXPECT_EQ(seen, expected);
}

TEST(Workshop, HasSoManyBatchesAtTheMakerAtOnce) {
  std::latch together(3);
  Workshop shop(crew_of([&](const Work&) { together.arrive_and_wait(); }, 3), kSchema,
                1, 3);
  std::vector<std::shared_ptr<const Ticket>> tickets;
  for (std::int64_t i = 0; i < 3; ++i) tickets.push_back(shop.begin({i}, {}));
  for (const auto& ticket : tickets) EXPECT_NE(ticket->wait(kLong), nullptr);
}

TEST(Workshop, TicketsWaitAsLongAsTheyAreAsked) {
  std::latch release(1);
  Workshop shop(crew_of([&](const Work&) { release.wait(); }), kSchema, 1, 1);
  const auto ticket = shop.begin({1}, {});
  EXPECT_EQ(ticket->wait(std::chrono::milliseconds(5)), nullptr);
  EXPECT_FALSE(ticket->done());
  release.count_down();
  const auto batch = ticket->wait(kLong);
  EXPECT_NE(batch, nullptr);
  EXPECT_TRUE(ticket->done());
  EXPECT_EQ(ticket->wait(kLong), batch);
}

TEST(Workshop, BatchesThatNobodyWaitsForAreNotMade) {
  std::latch release(1);
  std::atomic<int> made{0};
  Workshop shop(crew_of(
                    [&](const Work&) {
                      ++made;
                      release.wait();
                    },
                    1),
                kSchema, 1, 1);
  const auto first = shop.begin({0}, {});
  for (std::int64_t i = 1; i < 10; ++i) shop.begin({i}, {});
  const auto last = shop.begin({10}, {});
  release.count_down();
  EXPECT_NE(first->wait(kLong), nullptr);
  EXPECT_NE(last->wait(kLong), nullptr);
  EXPECT_EQ(made, 2);
}

TEST(Workshop, RethrowsToEveryoneWhoWaits) {
  Workshop shop(crew_of([](const Work& part) {
                  if (part.indices[0] == 3) {
                    throw FunctionError("sample 3 is bad", 3, "", nullptr);
                  }
                  tenfold(part);
                }),
                kSchema, 1, 2);
  const auto bad = shop.begin({3}, {});
  const auto good = shop.begin({4}, {});
  for (int i = 0; i < 2; ++i) {
    EXPECT_THROW(bad->wait(kLong), FunctionError);
  }
  EXPECT_EQ(value(*good->wait(kLong), 0), 40);
  EXPECT_EQ(shop.live(), 1);
}

TEST(Workshop, KeepsWhatTravelsBesideWithItsBatch) {
  Workshop shop(crew_of([](const Work& part) {
                  part.making.beside->add({part.first, part.rows(), "words", nullptr});
                }),
                kSchema, 4, 1);
  const auto batch = shop.begin({1, 2, 3}, {})->wait(kLong);
  std::int64_t rows = 0;
  for (const Beside::Part& part : batch->beside().parts()) rows += part.rows;
  EXPECT_EQ(rows, 3);
}

TEST(Workshop, RefusesWhatDoesNotFit) {
  Workshop shop(crew_of(tenfold), kSchema, 2, 1);
  EXPECT_THROW(shop.begin({1, 2, 3}, {}), ArgumentError);
  EXPECT_THROW(shop.begin({1, 2}, {1}), ArgumentError);
  EXPECT_THROW(Workshop(crew_of(tenfold), kSchema, 0, 1), ArgumentError);
  EXPECT_THROW(Workshop(crew_of(tenfold), kSchema, 2, 0), ArgumentError);
  EXPECT_THROW(Workshop(crew_of(tenfold), kSchema, 2, -9), ArgumentError);
}

TEST(Workshop, ClosingEndsEveryTicketAndBatchesOutliveIt) {
  std::shared_ptr<const Batch> kept;
  std::vector<std::shared_ptr<const Ticket>> tickets;
  std::latch begun(1);
  std::latch release(1);
  std::jthread later;
  {
    Workshop shop(crew_of(
                      [&](const Work& part) {
                        if (part.indices[0] == 1) {
                          begun.count_down();
                          release.wait();
                        }
                        tenfold(part);
                      },
                      1),
                  kSchema, 1, 2);
    kept = shop.begin({9}, {})->wait(kLong);
    for (std::int64_t i = 1; i < 20; ++i) tickets.push_back(shop.begin({i}, {}));
    begun.wait();
    later = std::jthread([&] {
      // The first is at work until the second has been told.
      while (!tickets[1]->done()) std::this_thread::yield();
      release.count_down();
    });
  }
  EXPECT_EQ(value(*kept, 0), 90);
  EXPECT_EQ(value(*tickets[0]->wait(kLong), 0), 10);
  for (std::size_t i = 1; i < tickets.size(); ++i) {
    ASSERT_TRUE(tickets[i]->done());
    EXPECT_THROW(tickets[i]->wait(kLong), Cancelled);
  }
}

#if !defined(__SANITIZE_THREAD__)
TEST(Workshop, AForkedProcessIsRefusedAndMayLetGo) {
  auto shop = std::make_unique<Workshop>(crew_of(tenfold), kSchema, 2, 2);
  ASSERT_NE(shop->begin({1, 2}, {})->wait(kLong), nullptr);
  const pid_t child = fork();
  if (child == 0) {
    try {
      shop->begin({1}, {});
    } catch (const ArgumentError&) {
      shop.reset();
      _exit(0);
    }
    _exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_NE(shop->begin({1, 2}, {})->wait(kLong), nullptr);
}
#endif

}  // namespace
}  // namespace millstream
