#include "millstream/loader/executor.h"

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
#include "millstream/workers/thread_worker_pool.h"

namespace millstream {
namespace {

constexpr auto kLong = std::chrono::minutes(1);
const Schema kSchema = {{"x", DType::kInt64, {}}};

using Function = std::function<void(const WorkRequest& chunk)>;

std::shared_ptr<WorkerPool> pool_of(Function each, int workers = 2) {
  ThreadWorkerPool::Function function;
  function.make = [each = std::move(each)](
                      const WorkRequest& chunk, std::atomic<std::int64_t>&,
                      const std::shared_ptr<const void>&) { each(chunk); };
  function.stack_of = [](std::uint64_t) { return std::string(); };
  return std::make_shared<ThreadWorkerPool>(std::move(function), workers,
                                            std::chrono::milliseconds(0));
}

void tenfold(const WorkRequest& chunk) {
  for (std::int64_t k = 0; k < chunk.rows(); ++k) {
    const auto row = static_cast<std::size_t>(k);
    const std::int64_t value =
        chunk.indices[row] * 10 +
        (chunk.seeds.empty() ? 0 : static_cast<std::int64_t>(chunk.seeds[row]));
    std::memcpy(chunk.output[0].row(k), &value, sizeof(value));
  }
}

std::int64_t value(const Batch& batch, std::int64_t row) {
  std::int64_t result;
  std::memcpy(&result, batch.columns()[0].row(row), sizeof(result));
  return result;
}

TEST(Executor, MakesTheNamedSamplesAndMasksTheOtherRows) {
  Executor executor(pool_of(tenfold), kSchema, 4, 2);
  EXPECT_EQ(executor.rows(), 4);
  const auto full = executor.submit({5, 6, 5, 0}, {1, 2, 3, 4})->wait(kLong);
  EXPECT_EQ(value(*full, 0), 51);
  EXPECT_EQ(value(*full, 2), 53);
  EXPECT_EQ(value(*full, 3), 4);
  EXPECT_TRUE(full->mask()[3]);
  const auto short_batch = executor.submit({7}, {})->wait(kLong);
  EXPECT_EQ(value(*short_batch, 0), 70);
  EXPECT_TRUE(short_batch->mask()[0]);
  EXPECT_FALSE(short_batch->mask()[1]);
  const auto none = executor.submit({}, {})->wait(kLong);
  EXPECT_FALSE(none->mask()[0]);
  EXPECT_EQ(executor.live(), 3);
}

TEST(Executor, PassesBatchesToTheWorkerPoolInOrder) {
  std::vector<std::int64_t> seen;
  std::mutex mutex;
  Executor executor(pool_of(
                        [&](const WorkRequest& chunk) {
                          const std::lock_guard lock(mutex);
                          seen.push_back(chunk.indices[0]);
                        },
                        1),
                    kSchema, 1, 1);
  std::vector<std::shared_ptr<const PendingBatch>> pending;
  std::vector<std::int64_t> expected;
  for (std::int64_t i = 0; i < 50; ++i) {
    expected.push_back(i);
    pending.push_back(executor.submit({i}, {}));
  }
  for (const auto& each : pending) ASSERT_NE(each->wait(kLong), nullptr);
  EXPECT_EQ(seen, expected);
}

TEST(Executor, PassesSeveralBatchesToTheWorkerPoolAtOnce) {
  std::latch together(3);
  Executor executor(pool_of([&](const WorkRequest&) { together.arrive_and_wait(); }, 3),
                    kSchema, 1, 3);
  std::vector<std::shared_ptr<const PendingBatch>> pending;
  for (std::int64_t i = 0; i < 3; ++i) pending.push_back(executor.submit({i}, {}));
  for (const auto& each : pending) EXPECT_NE(each->wait(kLong), nullptr);
}

TEST(Executor, PendingBatchesWaitUntilTheTimeout) {
  std::latch release(1);
  Executor executor(pool_of([&](const WorkRequest&) { release.wait(); }), kSchema, 1,
                    1);
  const auto pending = executor.submit({1}, {});
  EXPECT_EQ(pending->wait(std::chrono::milliseconds(5)), nullptr);
  EXPECT_FALSE(pending->done());
  release.count_down();
  const auto batch = pending->wait(kLong);
  EXPECT_NE(batch, nullptr);
  EXPECT_TRUE(pending->done());
  EXPECT_EQ(pending->wait(kLong), batch);
}

TEST(Executor, DoesNotMakeBatchesThatTheCallerDropped) {
  std::latch release(1);
  std::atomic<int> made{0};
  Executor executor(pool_of(
                        [&](const WorkRequest&) {
                          ++made;
                          release.wait();
                        },
                        1),
                    kSchema, 1, 1);
  const auto first = executor.submit({0}, {});
  for (std::int64_t i = 1; i < 10; ++i) executor.submit({i}, {});
  const auto last = executor.submit({10}, {});
  release.count_down();
  EXPECT_NE(first->wait(kLong), nullptr);
  EXPECT_NE(last->wait(kLong), nullptr);
  EXPECT_EQ(made, 2);
}

TEST(Executor, RethrowsTheErrorToEveryWaitingCaller) {
  Executor executor(pool_of([](const WorkRequest& chunk) {
                      if (chunk.indices[0] == 3) {
                        throw FunctionError("sample 3 is bad", 3, "", nullptr);
                      }
                      tenfold(chunk);
                    }),
                    kSchema, 1, 2);
  const auto bad = executor.submit({3}, {});
  const auto good = executor.submit({4}, {});
  for (int i = 0; i < 2; ++i) {
    EXPECT_THROW(bad->wait(kLong), FunctionError);
  }
  EXPECT_EQ(value(*good->wait(kLong), 0), 40);
  EXPECT_EQ(executor.live(), 1);
}

TEST(Executor, KeepsHostValuesWithTheirBatch) {
  Executor executor(pool_of([](const WorkRequest& chunk) {
                      for (std::int64_t k = 0; k < chunk.rows(); ++k) {
                        const std::int64_t sample =
                            chunk.indices[static_cast<std::size_t>(k)];
                        chunk.context.host_values->add(
                            {{chunk.first + k, nullptr, std::to_string(sample)}});
                      }
                    }),
                    kSchema, 4, 1);
  const auto batch = executor.submit({1, 2, 3}, {})->wait(kLong);
  ASSERT_EQ(batch->host_values().values().size(), 3u);
  for (const HostValue& value : batch->host_values().values()) {
    EXPECT_EQ(value.bytes, std::to_string(value.row + 1));
  }
}

TEST(Executor, RejectsBadArguments) {
  Executor executor(pool_of(tenfold), kSchema, 2, 1);
  EXPECT_THROW(executor.submit({1, 2, 3}, {}), ArgumentError);
  EXPECT_THROW(executor.submit({1, 2}, {1}), ArgumentError);
  EXPECT_THROW(Executor(pool_of(tenfold), kSchema, 0, 1), ArgumentError);
  EXPECT_THROW(Executor(pool_of(tenfold), kSchema, 2, 0), ArgumentError);
  EXPECT_THROW(Executor(pool_of(tenfold), kSchema, 2, -9), ArgumentError);
}

TEST(Executor, ClosingEndsPendingBatchesAndBatchesOutliveTheExecutor) {
  std::shared_ptr<const Batch> kept;
  std::vector<std::shared_ptr<const PendingBatch>> pending;
  std::latch begun(1);
  std::latch release(1);
  std::jthread later;
  {
    Executor executor(pool_of(
                          [&](const WorkRequest& chunk) {
                            if (chunk.indices[0] == 1) {
                              begun.count_down();
                              release.wait();
                            }
                            tenfold(chunk);
                          },
                          1),
                      kSchema, 1, 2);
    kept = executor.submit({9}, {})->wait(kLong);
    for (std::int64_t i = 1; i < 20; ++i) pending.push_back(executor.submit({i}, {}));
    begun.wait();
    later = std::jthread([&] {
      // The first batch is in progress until the second has been cancelled.
      while (!pending[1]->done()) std::this_thread::yield();
      release.count_down();
    });
  }
  EXPECT_EQ(value(*kept, 0), 90);
  EXPECT_EQ(value(*pending[0]->wait(kLong), 0), 10);
  for (std::size_t i = 1; i < pending.size(); ++i) {
    ASSERT_TRUE(pending[i]->done());
    EXPECT_THROW(pending[i]->wait(kLong), Cancelled);
  }
}

#if !defined(__SANITIZE_THREAD__)
TEST(Executor, AForkedProcessCanOnlyDestroyTheExecutor) {
  auto executor = std::make_unique<Executor>(pool_of(tenfold), kSchema, 2, 2);
  ASSERT_NE(executor->submit({1, 2}, {})->wait(kLong), nullptr);
  const pid_t child = fork();
  if (child == 0) {
    try {
      executor->submit({1}, {});
    } catch (const ArgumentError&) {
      executor.reset();
      _exit(0);
    }
    _exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_NE(executor->submit({1, 2}, {})->wait(kLong), nullptr);
}
#endif

}  // namespace
}  // namespace millstream
