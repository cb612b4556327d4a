#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <future>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "millstream/core/error.h"
#include "millstream/workers/descriptor.h"
#include "millstream/workers/process_crew.h"
#include "temporary_folder.h"
#include "workers/crew_rows.h"

namespace millstream {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kNever{600'000};

/// What making the rows throws, in words; "made" if it throws nothing.
template <typename E>
std::string failing(ProcessCrew& crew, const CrewRows& rows, Making making = {}) {
  try {
    crew.make(rows.work(making));
  } catch (const E& error) {
    return error.what();
  }
  return "made";
}

std::ptrdiff_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                       std::filesystem::directory_iterator());
}

bool has_children() { return waitpid(-1, nullptr, WNOHANG) != -1 || errno != ECHILD; }

bool holds(const std::string& words, const std::string& part) {
  return words.find(part) != std::string::npos;
}

TEST(ProcessCrewFailures, TheFirstRowThatFailedCounts) {
  for (const int workers : {1, 2, 5}) {
    const auto crew = crew_of({.mode = "fail", .sample = 11}, {.workers = workers});
    const CrewRows rows(*crew, samples(0, 40), {24}, true);
    for (int i = 0; i < 5; ++i) {
      try {
        crew->make(rows.work());
        FAIL() << "the rows were made";
      } catch (const FunctionError& error) {
        EXPECT_STREQ(error.what(), "sample 11 is bad");
        EXPECT_EQ(error.sample(), 11);
        EXPECT_EQ(error.bytes(), "as bytes");
      }
    }
    const CrewRows others(*crew, samples(0, 11), {24}, true);
    crew->make(others.work());
    EXPECT_TRUE(others.right());
  }
}

TEST(ProcessCrewFailures, SayHowAWorkerDiedAndAtWhichSample) {
  struct Death {
    Told told;
    std::string words;
  };
  const Death deaths[] = {
      {{.mode = "kill", .sample = 5, .number = SIGKILL},
       "was killed by signal 9 (Kill"},
      {{.mode = "kill", .sample = 5, .number = SIGSEGV},
       "was killed by signal 11 (Seg"},
      {{.mode = "exit", .sample = 5, .number = 3}, "exited with status 3"},
      {{.mode = "deaf", .sample = 5}, "closed its connection"},
      {{.mode = "babble", .sample = 5}, "sent what is no answer"}};
  for (const Death& death : deaths) {
    const auto crew = crew_of(death.told, {.workers = 2});
    const CrewRows good(*crew, samples(10, 8), {24}, true);
    crew->make(good.work());
    const auto pids = crew->pids();
    const CrewRows rows(*crew, samples(0, 8), {24}, true);
    const std::string words = failing<WorkerDied>(*crew, rows);
    EXPECT_TRUE(holds(words, death.words)) << words;
    EXPECT_TRUE(words.ends_with(" while it made sample 5")) << words;
    EXPECT_TRUE(std::ranges::any_of(pids, [&](std::int64_t pid) {
      return words.starts_with(text("worker process ", pid, " "));
    })) << words;
    crew->make(good.work());  // by another in its place
    EXPECT_TRUE(good.right());
  }
}

TEST(ProcessCrewFailures, AWorkerThatDiesIdleIsReplaced) {
  const auto crew = crew_of({}, {.workers = 1});
  const CrewRows rows(*crew, samples(0, 8), {24}, true);
  for (int i = 0; i < 3; ++i) {
    crew->make(rows.work());
    const auto pids = crew->pids();
    ASSERT_EQ(pids.size(), 1u);
    kill(static_cast<pid_t>(pids[0]), SIGKILL);
    while (!crew->pids().empty()) std::this_thread::sleep_for(milliseconds(1));
  }
  crew->make(rows.work());
  EXPECT_TRUE(rows.right());
}

TEST(ProcessCrewFailures, RestartsTryTheSampleAgain) {
  for (const std::string mode : {"kill", "exit", "stall"}) {
    const TemporaryFolder folder;
    const auto crew = crew_of(
        {.mode = mode, .sample = 5, .number = 9, .path = folder.path() / "once"},
        {.workers = 2, .timeout = milliseconds(500), .restarts = 2});
    const CrewRows rows(*crew, samples(0, 20), {24}, true);
    crew->make(rows.work());
    EXPECT_TRUE(rows.right()) << mode;
    EXPECT_TRUE(std::filesystem::exists(folder.path() / "once"));
  }
}

TEST(ProcessCrewFailures, RestartsComeToAnEnd) {
  const auto crew = crew_of({.mode = "kill", .sample = 5, .number = SIGKILL},
                            {.workers = 2, .restarts = 3});
  const CrewRows rows(*crew, samples(0, 20), {24}, true);
  EXPECT_TRUE(holds(failing<WorkerDied>(*crew, rows), "while it made sample 5"));
}

TEST(ProcessCrewFailures, AWorkerThatCannotBeginSaysWhy) {
  for (const int restarts : {0, 2}) {
    const auto refusing =
        crew_of({.mode = "refuse"}, {.workers = 2, .restarts = restarts});
    const CrewRows rows(*refusing, samples(0, 20), {24}, false);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(failing<FunctionError>(*refusing, rows), "cannot be set up");
    }
    const auto vanishing =
        crew_of({.mode = "vanish", .number = 7}, {.workers = 2, .restarts = restarts});
    const std::string words = failing<WorkerDied>(*vanishing, rows);
    EXPECT_TRUE(words.ends_with(" exited with status 7 before it could begin"))
        << words;
  }
}

TEST(ProcessCrewFailures, AWorkerThatEndsBeforeItsFirstPartIsNotReplacedForEver) {
  for (const int restarts : {0, 2}) {
    const auto crew = crew_of({.mode = "noise"}, {.workers = 1, .restarts = restarts});
    const CrewRows rows(*crew, samples(0, 20), {24}, false);
    const std::string words = failing<WorkerDied>(*crew, rows);
    EXPECT_TRUE(holds(words, "sent what is no answer")) << words;
    EXPECT_TRUE(words.ends_with(" before it could begin")) << words;
  }
}

TEST(ProcessCrewFailures, ACommandThatDoesNotExistIsNamed) {
  const std::ptrdiff_t before = open_descriptors();
  {
    ProcessCrew crew({{"/no/such/program"}, {}, ""}, {.workers = 2});
    const CrewRows rows(crew, samples(0, 20), {24}, false);
    for (int i = 0; i < 3; ++i) {
      try {
        crew.make(rows.work());
        FAIL() << "the rows were made";
      } catch (const IoError& error) {
        EXPECT_EQ(error.code(), ENOENT);
        EXPECT_EQ(error.path(), "/no/such/program");
        EXPECT_TRUE(holds(error.what(), "/no/such/program: cannot be started"));
      }
    }
    EXPECT_TRUE(crew.pids().empty());
  }
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_FALSE(has_children());
}

TEST(ProcessCrewFailures, AStallSaysWhereTheWorkerIs) {
  const auto crew = crew_of({.mode = "stall", .sample = 5},
                            {.workers = 2, .timeout = milliseconds(500)});
  const CrewRows rows(*crew, samples(0, 8), {24}, false);
  const std::string words = failing<WorkerStalled>(*crew, rows);
  EXPECT_TRUE(
      words.starts_with("sample 5 has taken more than 500 ms in worker process "))
      << words;
  EXPECT_TRUE(words.ends_with(", which is at\nmaking sample 5\n")) << words;
  const CrewRows good(*crew, samples(10, 8), {24}, false);
  crew->make(good.work());
  EXPECT_TRUE(good.right());
}

TEST(ProcessCrewFailures, ManyRowsMayTakeLongerThanOneMay) {
  const auto crew = crew_of({.mode = "slow", .number = 30'000},
                            {.workers = 1, .timeout = milliseconds(500)});
  const CrewRows rows(*crew, samples(0, 25), {24}, true);
  crew->make(rows.work());
  EXPECT_TRUE(rows.right());
}

TEST(ProcessCrewFailures, RowsMadeAtOnceHaveTheTimeOfAllOfThem) {
  const auto crew = crew_of({.mode = "together", .number = 100'000},
                            {.workers = 1, .timeout = milliseconds(500)});
  const CrewRows rows(*crew, samples(0, 10), {24}, true);
  crew->make(rows.work());
  EXPECT_TRUE(rows.right());

  const auto slow = crew_of({.mode = "together", .number = 1'000'000},
                            {.workers = 1, .timeout = milliseconds(50)});
  const CrewRows many(*slow, samples(3, 10), {24}, true);
  const std::string words = failing<WorkerStalled>(*slow, many);
  EXPECT_TRUE(
      words.starts_with("one of samples [3, 4, 5, 6, 7, 8, 9, 10, ...] has "
                        "taken more than 500 ms in worker process "))
      << words;
}

TEST(ProcessCrewFailures, ClosingTellsThoseWhoWait) {
  const std::ptrdiff_t before = open_descriptors();
  {
    const TemporaryFolder folder;
    const auto stalled = folder.path() / "stalled";
    const auto crew =
        crew_of({.mode = "stall", .sample = 5, .path = stalled}, {.workers = 1});
    const CrewRows rows(*crew, samples(0, 40), {24}, false);
    std::vector<std::future<std::string>> waiting;
    for (int i = 0; i < 4; ++i) {
      waiting.push_back(std::async(std::launch::async,
                                   [&] { return failing<Cancelled>(*crew, rows); }));
    }
    while (!std::filesystem::exists(stalled)) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    crew->close();
    for (auto& words : waiting) {
      ASSERT_EQ(words.wait_for(kNever), std::future_status::ready);
      EXPECT_EQ(words.get(), "the workers were closed");
    }
    EXPECT_TRUE(crew->pids().empty());
    EXPECT_EQ(failing<Cancelled>(*crew, rows), "the workers were closed");
    crew->close();
  }
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_FALSE(has_children());
}

TEST(ProcessCrewFailures, WhatIsCancelledEndsThoughItsWorkerDoesNot) {
  const auto crew = crew_of({.mode = "stall", .sample = 5}, {.workers = 1});
  const CrewRows rows(*crew, samples(5, 3), {24}, false);
  std::atomic<bool> cancelled{false};
  auto stuck = std::async(std::launch::async, [&] {
    return failing<Cancelled>(*crew, rows, {nullptr, nullptr, &cancelled});
  });
  while (crew->pids().empty()) std::this_thread::sleep_for(milliseconds(1));
  const CrewRows queued(*crew, samples(0, 5), {24}, true);
  auto behind = std::async(std::launch::async, [&] { crew->make(queued.work()); });
  std::this_thread::sleep_for(milliseconds(50));
  cancelled = true;
  EXPECT_EQ(stuck.get(), "nobody wants these rows");
  behind.get();  // by another worker
  EXPECT_TRUE(queued.right());
}

TEST(ProcessCrewFailures, WhatIsCancelledBeforeItBeginsNeverDoes) {
  const auto crew = crew_of({}, {.workers = 1});
  const std::atomic<bool> cancelled{true};
  const CrewRows rows(*crew, samples(0, 500), {24}, true);
  const std::string words =
      failing<Cancelled>(*crew, rows, {nullptr, nullptr, &cancelled});
  EXPECT_EQ(words, "nobody wants these rows");
  EXPECT_TRUE(crew->pids().empty());
  crew->make(rows.work());
  EXPECT_TRUE(rows.right());
}

TEST(ProcessCrewFailures, NoDescriptorAndNoChildIsLeft) {
  const std::ptrdiff_t before = open_descriptors();
  for (int round = 0; round < 5; ++round) {
    const auto crew = crew_of({.mode = "kill", .sample = 5, .number = SIGKILL},
                              {.workers = 3, .restarts = 2});
    const CrewRows rows(*crew, samples(0, 20), {24}, round % 2 == 0);
    EXPECT_NE(failing<WorkerDied>(*crew, rows), "made");
    const CrewRows good(*crew, samples(10, 20), {24}, round % 2 == 0);
    crew->make(good.work());
    EXPECT_TRUE(good.right());
  }
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_FALSE(has_children());
}

TEST(ProcessCrewFailures, AParentThatIsKilledTakesItsWorkersAlong) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const Descriptor read_end(ends[0]);
  pid_t boss = -1;
  {
    const Descriptor write_end(ends[1]);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, write_end.number(), 1);
    char program[] = MILLSTREAM_TEST_WORKER;
    char role[] = "boss";
    char* arguments[] = {program, role, nullptr};
    ASSERT_EQ(posix_spawn(&boss, program, &actions, nullptr, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
  }
  std::string said;
  char buffer[100];
  while (std::ranges::count(said, '\n') < 2) {  // its workers keep the pipe open
    const ssize_t got = read(read_end.number(), buffer, sizeof(buffer));
    ASSERT_GT(got, 0);
    said.append(buffer, static_cast<std::size_t>(got));
  }
  std::vector<Descriptor> workers;
  std::istringstream pids(said);
  for (pid_t pid; pids >> pid;) {
    workers.emplace_back(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    ASSERT_TRUE(workers.back()) << "worker " << pid << " does not run";
  }
  EXPECT_EQ(workers.size(), 2u) << said;
  kill(boss, SIGKILL);
  ASSERT_EQ(waitpid(boss, nullptr, 0), boss);
  for (const Descriptor& worker : workers) {
    pollfd waited{worker.number(), POLLIN, 0};
    EXPECT_EQ(poll(&waited, 1, 60'000), 1) << "a worker outlives its parent";
  }
}

}  // namespace
}  // namespace millstream
