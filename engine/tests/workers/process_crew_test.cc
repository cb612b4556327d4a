#include "millstream/workers/process_crew.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "millstream/core/error.h"
#include "workers/crew_rows.h"

namespace millstream {
namespace {

const std::vector<std::int64_t> kColumns = {24, 1, 0, 784};

TEST(ProcessCrew, MakesTheSameBytesWithAnyNumberOfWorkers) {
  for (const int workers : {1, 2, 5}) {
    const auto crew = crew_of({.bytes = kColumns}, {.workers = workers});
    EXPECT_EQ(crew->workers(), workers);
    EXPECT_TRUE(crew->pids().empty());  // nothing was asked of it
    for (const std::int64_t rows : {1, 7, 64, 33}) {
      for (const bool shared : {true, false}) {
        CrewRows made(*crew, samples(rows * 10, rows), kColumns, shared);
        crew->make(made.work());
        EXPECT_TRUE(made.right()) << workers << " workers, " << rows << " rows";
      }
    }
    EXPECT_EQ(crew->pids().size(), static_cast<std::size_t>(workers));
  }
}

TEST(ProcessCrew, WritesRowsWithGapsAndLeavesThose) {
  const auto crew = crew_of({.bytes = kColumns}, {.workers = 2});
  for (const bool shared : {true, false}) {
    for (const std::int64_t gap : {1, 40}) {
      CrewRows made(*crew, samples(3, 19), kColumns, shared, gap);
      crew->make(made.work());
      EXPECT_TRUE(made.right());
    }
  }
}

TEST(ProcessCrew, GivesEachRowItsSeed) {
  const auto crew = crew_of({}, {.workers = 2});
  CrewRows made(*crew, samples(0, 21), {24}, true);
  for (std::uint64_t k = 0; k < 21; ++k) made.seeds.push_back(k * k << 40);
  crew->make(made.work());
  EXPECT_TRUE(made.right());
}

TEST(ProcessCrew, ReadsInputWhereverItLies) {
  constexpr std::int64_t kRows = 13;
  const auto crew = crew_of({.mode = "echo"}, {.workers = 2});
  Block shared = crew->block(kRows * 24);
  Block elsewhere(kRows * 24);
  std::vector<std::byte*> rows;
  for (std::int64_t at = 0; at < kRows * 24; ++at) {
    shared.data()[at] = elsewhere.data()[at] = static_cast<std::byte>(at * 7);
  }
  for (std::int64_t k = 0; k < kRows; ++k) {
    rows.push_back(elsewhere.data() + (kRows - 1 - k) * 24);
  }
  const Shape shape({24});
  const Column inputs[] = {{DType::kUint8, shape, shared.data(), 24, nullptr},
                           {DType::kUint8, shape, elsewhere.data(), 24, nullptr},
                           {DType::kUint8, shape, nullptr, 0, rows.data()},
                           {DType::kUint8, shape, shared.data(), 0, nullptr}};
  for (const Column& input : inputs) {
    CrewRows made(*crew, samples(0, kRows), {24}, true);
    made.input = {input};
    crew->make(made.work());
    for (std::int64_t k = 0; k < kRows; ++k) {
      for (std::int64_t at = 0; at < 24; ++at) {
        ASSERT_EQ(made.columns()[0].row(k)[at], input.row(k)[at] ^ std::byte{0xFF});
      }
    }
  }
}

TEST(ProcessCrew, NoRowsAreMadeAtOnce) {
  const auto crew = crew_of({}, {.workers = 2});
  CrewRows made(*crew, {}, {24}, false);
  crew->make(made.work());
  EXPECT_TRUE(made.right());
}

TEST(ProcessCrew, ServesManyThreadsAtOnce) {
  const auto crew = crew_of({.bytes = kColumns}, {.workers = 2});
  std::vector<std::jthread> threads;
  for (int id = 0; id < 6; ++id) {
    threads.emplace_back([&, id] {
      for (int i = 0; i < 15; ++i) {
        CrewRows made(*crew, samples(id * 1000, 1 + (id * 7 + i) % 30), kColumns,
                      (id + i) % 2 == 0);
        crew->make(made.work());
        EXPECT_TRUE(made.right());
      }
    });
  }
}

TEST(ProcessCrew, BringsWhatTravelsBeside) {
  const auto crew = crew_of({.mode = "beside"}, {.workers = 2});
  CrewRows made(*crew, samples(100, 30), {24}, true);
  Beside beside;
  Work work = made.work({&beside, nullptr, nullptr});
  work.first = 1000;
  crew->make(work);
  auto parts = beside.parts();
  std::ranges::sort(parts, {}, &Beside::Part::first);
  std::int64_t next = 1000;
  std::string words;
  for (const Beside::Part& part : parts) {
    EXPECT_EQ(part.first, next);
    next += part.rows;
    words += part.bytes;
  }
  EXPECT_EQ(next, 1030);
  std::string expected;
  for (std::int64_t k = 100; k < 130; ++k) expected += std::to_string(k) + ' ';
  EXPECT_EQ(words, expected);
}

TEST(ProcessCrew, BlocksOutliveIt) {
  auto crew = crew_of({}, {.workers = 1});
  const CrewRows made(*crew, samples(0, 5), {24}, true);
  crew->make(made.work());
  crew.reset();
  EXPECT_TRUE(made.right());
}

TEST(ProcessCrew, TakesALargeSetup) {
  Told told;
  told.path = std::string(4'000'000, 'p');  // more than a socket holds
  const auto crew = crew_of(told, {.workers = 2});
  const CrewRows made(*crew, samples(0, 5), {24}, true);
  crew->make(made.work());
  EXPECT_TRUE(made.right());
}

TEST(ProcessCrew, RefusesBadOptions) {
  const Launch launch{{MILLSTREAM_TEST_WORKER}, {}, ""};
  EXPECT_THROW(ProcessCrew(launch, {.workers = 0}), ArgumentError);
  EXPECT_THROW(ProcessCrew(launch, {.restarts = -1}), ArgumentError);
  EXPECT_THROW(ProcessCrew(launch, {.timeout = std::chrono::milliseconds(-1)}),
               ArgumentError);
  EXPECT_THROW(ProcessCrew({{}, {}, ""}, {}), ArgumentError);
}

#if !defined(__SANITIZE_THREAD__)
TEST(ProcessCrew, AForkedProcessLetsGoOfItAndNoMore) {
  auto crew = crew_of({}, {.workers = 2});
  const CrewRows made(*crew, samples(0, 9), {24}, true);
  crew->make(made.work());
  const pid_t child = fork();
  if (child == 0) {
    bool refused = false;
    try {
      crew->make(made.work());
    } catch (const ArgumentError&) {
      refused = true;
    }
    crew->block(10).data()[0] = std::byte{1};
    refused = refused && crew->pids().empty();
    crew.reset();
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(made.right());
  crew->make(made.work());
  EXPECT_TRUE(made.right());
}
#endif

}  // namespace
}  // namespace millstream
