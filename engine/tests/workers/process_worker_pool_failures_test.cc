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
#include "millstream/workers/process_worker_pool.h"
#include "temporary_folder.h"
#include "workers/pool_rows.h"

namespace millstream {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kNever{600'000};

/// The message of the error that `make` throws, or "made".
template <typename E>
std::string failing(ProcessWorkerPool& pool, const PoolRows& rows,
                    CallContext context = {}) {
  try {
    pool.make(rows.request(context));
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

bool holds(const std::string& words, const std::string& chunk) {
  return words.find(chunk) != std::string::npos;
}

TEST(ProcessWorkerPoolFailures, ReportsTheErrorOfTheLowestRow) {
  for (const int workers : {1, 2, 5}) {
    const auto pool = pool_of({.mode = "fail", .sample = 11}, {.workers = workers});
    const PoolRows rows(*pool, samples(0, 40), {24}, true);
    for (int i = 0; i < 5; ++i) {
      try {
        pool->make(rows.request());
        FAIL() << "the rows were made";
      } catch (const FunctionError& error) {
        EXPECT_STREQ(error.what(), "sample 11 is bad");
        EXPECT_EQ(error.sample(), 11);
        EXPECT_EQ(error.bytes(), "as bytes");
      }
    }
    const PoolRows others(*pool, samples(0, 11), {24}, true);
    pool->make(others.request());
    EXPECT_TRUE(others.right());
  }
}

TEST(ProcessWorkerPoolFailures, ReportsHowAWorkerDiedAndAtWhichSample) {
  struct Death {
    Instructions instructions;
    std::string words;
  };
  const Death deaths[] = {
      {{.mode = "kill", .sample = 5, .number = SIGKILL},
       "was killed by signal 9 (Kill"},
      {{.mode = "kill", .sample = 5, .number = SIGSEGV},
       "was killed by signal 11 (Seg"},
      {{.mode = "exit", .sample = 5, .number = 3}, "exited with status 3"},
      {{.mode = "deaf", .sample = 5}, "closed its connection"},
      {{.mode = "babble", .sample = 5}, "sent an invalid answer"}};
  for (const Death& death : deaths) {
    const auto pool = pool_of(death.instructions, {.workers = 2});
    const PoolRows good(*pool, samples(10, 8), {24}, true);
    pool->make(good.request());
    const auto pids = pool->pids();
    const PoolRows rows(*pool, samples(0, 8), {24}, true);
    const std::string words = failing<WorkerDied>(*pool, rows);
    EXPECT_TRUE(holds(words, death.words)) << words;
    EXPECT_TRUE(words.ends_with(" while it made sample 5")) << words;
    EXPECT_TRUE(std::ranges::any_of(pids, [&](std::int64_t pid) {
      return words.starts_with(text("worker process ", pid, " "));
    })) << words;
    pool->make(good.request());  // a new process has replaced it
    EXPECT_TRUE(good.right());
  }
}

TEST(ProcessWorkerPoolFailures, AnIdleWorkerThatDiesIsReplaced) {
  const auto pool = pool_of({}, {.workers = 1});
  const PoolRows rows(*pool, samples(0, 8), {24}, true);
  for (int i = 0; i < 3; ++i) {
    pool->make(rows.request());
    const auto pids = pool->pids();
    ASSERT_EQ(pids.size(), 1u);
    kill(static_cast<pid_t>(pids[0]), SIGKILL);
    while (!pool->pids().empty()) std::this_thread::sleep_for(milliseconds(1));
  }
  pool->make(rows.request());
  EXPECT_TRUE(rows.right());
}

TEST(ProcessWorkerPoolFailures, RestartsRetryTheSample) {
  for (const std::string mode : {"kill", "exit", "stall"}) {
    const TemporaryFolder folder;
    const auto pool = pool_of(
        {.mode = mode, .sample = 5, .number = 9, .path = folder.path() / "once"},
        {.workers = 2, .timeout = milliseconds(500), .restarts = 2});
    const PoolRows rows(*pool, samples(0, 20), {24}, true);
    pool->make(rows.request());
    EXPECT_TRUE(rows.right()) << mode;
    EXPECT_TRUE(std::filesystem::exists(folder.path() / "once"));
  }
}

TEST(ProcessWorkerPoolFailures, RestartsAreLimited) {
  const auto pool = pool_of({.mode = "kill", .sample = 5, .number = SIGKILL},
                            {.workers = 2, .restarts = 3});
  const PoolRows rows(*pool, samples(0, 20), {24}, true);
  EXPECT_TRUE(holds(failing<WorkerDied>(*pool, rows), "while it made sample 5"));
}

TEST(ProcessWorkerPoolFailures, ReportsWhyAWorkerCannotStart) {
  for (const int restarts : {0, 2}) {
    const auto refusing =
        pool_of({.mode = "refuse"}, {.workers = 2, .restarts = restarts});
    const PoolRows rows(*refusing, samples(0, 20), {24}, false);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(failing<FunctionError>(*refusing, rows), "cannot be set up");
    }
    const auto vanishing =
        pool_of({.mode = "vanish", .number = 7}, {.workers = 2, .restarts = restarts});
    const std::string words = failing<WorkerDied>(*vanishing, rows);
    EXPECT_TRUE(
        words.ends_with(" exited with status 7 before it made its first sample"))
        << words;
  }
}

TEST(ProcessWorkerPoolFailures,
     AWorkerThatEndsBeforeItsFirstChunkIsNotReplacedForever) {
  for (const int restarts : {0, 2}) {
    const auto pool = pool_of({.mode = "noise"}, {.workers = 1, .restarts = restarts});
    const PoolRows rows(*pool, samples(0, 20), {24}, false);
    const std::string words = failing<WorkerDied>(*pool, rows);
    EXPECT_TRUE(holds(words, "sent an invalid answer")) << words;
    EXPECT_TRUE(words.ends_with(" before it made its first sample")) << words;
  }
}

TEST(ProcessWorkerPoolFailures, ReportsACommandThatDoesNotExist) {
  const std::ptrdiff_t before = open_descriptors();
  {
    ProcessWorkerPool pool({{"/no/such/program"}, {}, ""}, {.workers = 2});
    const PoolRows rows(pool, samples(0, 20), {24}, false);
    for (int i = 0; i < 3; ++i) {
      try {
        pool.make(rows.request());
        FAIL() << "the rows were made";
      } catch (const IoError& error) {
        EXPECT_EQ(error.code(), ENOENT);
        EXPECT_EQ(error.fields().file.path, "/no/such/program");
        EXPECT_TRUE(holds(error.what(), "/no/such/program: cannot be started"));
      }
    }
    EXPECT_TRUE(pool.pids().empty());
  }
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_FALSE(has_children());
}

TEST(ProcessWorkerPoolFailures, AStallReportsTheStackOfTheWorker) {
  const auto pool = pool_of({.mode = "stall", .sample = 5},
                            {.workers = 2, .timeout = milliseconds(500)});
  const PoolRows rows(*pool, samples(0, 8), {24}, false);
  const std::string words = failing<WorkerStalled>(*pool, rows);
  EXPECT_TRUE(
      words.starts_with("sample 5 has taken more than 500 ms in worker process "))
      << words;
  EXPECT_TRUE(words.ends_with(", which is at\nmaking sample 5\n")) << words;
  const PoolRows good(*pool, samples(10, 8), {24}, false);
  pool->make(good.request());
  EXPECT_TRUE(good.right());
}

TEST(ProcessWorkerPoolFailures, TheTimeoutIsPerRow) {
  const auto pool = pool_of({.mode = "slow", .number = 30'000},
                            {.workers = 1, .timeout = milliseconds(500)});
  const PoolRows rows(*pool, samples(0, 25), {24}, true);
  pool->make(rows.request());
  EXPECT_TRUE(rows.right());
}

TEST(ProcessWorkerPoolFailures, RowsMadeTogetherShareTheSumOfTheirTimeouts) {
  const auto pool = pool_of({.mode = "together", .number = 100'000},
                            {.workers = 1, .timeout = milliseconds(500)});
  const PoolRows rows(*pool, samples(0, 10), {24}, true);
  pool->make(rows.request());
  EXPECT_TRUE(rows.right());

  const auto slow = pool_of({.mode = "together", .number = 1'000'000},
                            {.workers = 1, .timeout = milliseconds(50)});
  const PoolRows many(*slow, samples(3, 10), {24}, true);
  const std::string words = failing<WorkerStalled>(*slow, many);
  EXPECT_TRUE(
      words.starts_with("one of samples [3, 4, 5, 6, 7, 8, 9, 10, ...] has "
                        "taken more than 500 ms in worker process "))
      << words;
}

TEST(ProcessWorkerPoolFailures, ClosingFailsWaitingCallers) {
  const std::ptrdiff_t before = open_descriptors();
  {
    const TemporaryFolder folder;
    const auto stalled = folder.path() / "stalled";
    const auto pool =
        pool_of({.mode = "stall", .sample = 5, .path = stalled}, {.workers = 1});
    const PoolRows rows(*pool, samples(0, 40), {24}, false);
    std::vector<std::future<std::string>> waiting;
    for (int i = 0; i < 4; ++i) {
      waiting.push_back(std::async(std::launch::async,
                                   [&] { return failing<Cancelled>(*pool, rows); }));
    }
    while (!std::filesystem::exists(stalled)) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    pool->close();
    for (auto& words : waiting) {
      ASSERT_EQ(words.wait_for(kNever), std::future_status::ready);
      EXPECT_EQ(words.get(), "the worker pool was closed");
    }
    EXPECT_TRUE(pool->pids().empty());
    EXPECT_EQ(failing<Cancelled>(*pool, rows), "the worker pool was closed");
    pool->close();
  }
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_FALSE(has_children());
}

TEST(ProcessWorkerPoolFailures, ACancelledRequestEndsEvenIfItsWorkerIsStuck) {
  const auto pool = pool_of({.mode = "stall", .sample = 5}, {.workers = 1});
  const PoolRows rows(*pool, samples(5, 3), {24}, false);
  std::atomic<bool> cancelled{false};
  auto stuck = std::async(std::launch::async, [&] {
    return failing<Cancelled>(*pool, rows, {nullptr, nullptr, &cancelled});
  });
  while (pool->pids().empty()) std::this_thread::sleep_for(milliseconds(1));
  const PoolRows queued(*pool, samples(0, 5), {24}, true);
  auto behind = std::async(std::launch::async, [&] { pool->make(queued.request()); });
  std::this_thread::sleep_for(milliseconds(50));
  cancelled = true;
  EXPECT_EQ(stuck.get(), "the request was cancelled");
  behind.get();  // a new worker makes it
  EXPECT_TRUE(queued.right());
}

TEST(ProcessWorkerPoolFailures, ACancelledRequestDoesNotStart) {
  const auto pool = pool_of({}, {.workers = 1});
  const std::atomic<bool> cancelled{true};
  const PoolRows rows(*pool, samples(0, 500), {24}, true);
  const std::string words =
      failing<Cancelled>(*pool, rows, {nullptr, nullptr, &cancelled});
  EXPECT_EQ(words, "the request was cancelled");
  EXPECT_TRUE(pool->pids().empty());
  pool->make(rows.request());
  EXPECT_TRUE(rows.right());
}

TEST(ProcessWorkerPoolFailures, LeaksNoDescriptorsOrProcesses) {
  const std::ptrdiff_t before = open_descriptors();
  for (int round = 0; round < 5; ++round) {
    const auto pool = pool_of({.mode = "kill", .sample = 5, .number = SIGKILL},
                              {.workers = 3, .restarts = 2});
    const PoolRows rows(*pool, samples(0, 20), {24}, round % 2 == 0);
    EXPECT_NE(failing<WorkerDied>(*pool, rows), "made");
    const PoolRows good(*pool, samples(10, 20), {24}, round % 2 == 0);
    pool->make(good.request());
    EXPECT_TRUE(good.right());
  }
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_FALSE(has_children());
}

TEST(ProcessWorkerPoolFailures, WorkersEndWhenTheirParentIsKilled) {
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
  while (std::ranges::count(said, '\n') <
         2) {  // no end of file: the workers keep the pipe open
    const ssize_t got = read(read_end.number(), buffer, sizeof(buffer));
    ASSERT_GT(got, 0);
    said.append(buffer, static_cast<std::size_t>(got));
  }
  std::vector<Descriptor> workers;
  std::istringstream pids(said);
  for (pid_t pid; pids >> pid;) {
    workers.emplace_back(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    ASSERT_TRUE(workers.back()) << "worker " << pid << " is not running";
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
