#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "loader/deliveries.h"
#include "loader/sample_plan.h"
#include "millstream/loader/loader.h"
#include "millstream/source/function.h"
#include "millstream/workers/thread_worker_pool.h"
#include "workers/pool_rows.h"

namespace millstream {
namespace {

using std::chrono::milliseconds;
constexpr auto kLong = std::chrono::minutes(1);
constexpr std::int64_t kSamples = 60;
constexpr std::int64_t kRows = 6;

std::shared_ptr<WorkerPool> calling(std::function<void(std::int64_t)> each,
                                    int workers) {
  ThreadWorkerPool::Function function;
  function.make = [each = std::move(each)](const WorkRequest& chunk,
                                           std::atomic<std::int64_t>&,
                                           const std::shared_ptr<const void>&) {
    for (std::int64_t k = 0; k < chunk.rows(); ++k) {
      const std::int64_t index = chunk.indices[static_cast<std::size_t>(k)];
      each(index);
      std::memcpy(chunk.output[0].row(k), &index, sizeof(index));
    }
  };
  function.stack_of = [](std::uint64_t) { return std::string(); };
  return std::make_shared<ThreadWorkerPool>(std::move(function), workers,
                                            milliseconds(0));
}

TEST(WorkerBatches, AFunctionIsCalledOncePerSample) {
  std::vector<std::atomic<int>> calls(kSamples);
  const auto pool =
      calling([&](std::int64_t index) { ++calls[static_cast<std::size_t>(index)]; }, 2);
  const auto plan = sample_plan(std::make_shared<FunctionSource>(
                                    kSamples, Schema{{"x", DType::kInt64, {}}}, pool),
                                kRows);
  constexpr int kAhead = 3;
  {
    Loader loader(plan, dtypes_of(*plan), {2, kAhead});
    Layout layout(plan->schema(), kRows);
    const Batch batch(layout, std::make_shared<const Block>(layout.bytes()));
    Position position{{1, 2}, 0, 0};
    for (std::int64_t i = 0; i < 2 * plan->schedule().steps(); ++i) {
      fill(loader, position, batch.columns(), batch.mask());
      std::vector<std::int64_t> expected(kRows);
      plan->schedule().run(position, 0, expected);
      ASSERT_EQ(std::memcmp(batch.columns()[0].data, expected.data(), kRows * 8), 0);
      position = plan->schedule().next(position);
    }
  }
  int total = 0;
  for (const auto& times : calls) {
    EXPECT_GE(times, 2);
    EXPECT_LE(times, 3);
    total += times;
  }
  EXPECT_LE(total, 2 * kSamples + kAhead * kRows);
}

TEST(WorkerBatches, TheLoopItselfMayCallTheFunctionOfOneWorker) {
  const auto here = std::this_thread::get_id();
  std::atomic<int> calls_here = 0;
  std::atomic<int> calls = 0;
  const auto pool = calling(
      [&](std::int64_t) {
        ++calls;
        if (std::this_thread::get_id() == here) ++calls_here;
      },
      1);
  const auto plan = sample_plan(std::make_shared<FunctionSource>(
                                    kSamples, Schema{{"x", DType::kInt64, {}}}, pool),
                                kRows);
  for (const int ahead : {0, 2}) {
    calls = calls_here = 0;
    Loader loader(plan, dtypes_of(*plan), {2, ahead});
    Position position{{1, 2}, 0, 0};
    // Several changes between the worker and the caller.
    const int steps = CallerTrial::kWindows * (ahead + 1 + CallerTrial::kMeasured) + 50;
    for (int i = 0; i < steps; ++i) {
      const auto batch = loader.deliver({.position = position, .may_call = true}).batch;
      std::vector<std::int64_t> expected(kRows);
      plan->schedule().run(position, 0, expected);
      ASSERT_EQ(std::memcmp(batch->columns()[0].data, expected.data(), kRows * 8), 0);
      position = plan->schedule().next(position);
    }
    const int most = (steps + ahead) * static_cast<int>(kRows);
    EXPECT_LE(calls, most) << "a batch was made twice";
    if (ahead == 0) {
      EXPECT_EQ(calls_here, most);
    } else {
      EXPECT_GE(calls_here, 2 * CallerTrial::kMeasured * kRows);
      EXPECT_LT(calls_here, calls);
    }
  }
}

TEST(WorkerBatches, ACallerMayStopWaitingForAFunction) {
  std::latch release(1);
  const auto pool = calling([&](std::int64_t) { release.wait(); }, 1);
  const auto plan = sample_plan(std::make_shared<FunctionSource>(
                                    kSamples, Schema{{"x", DType::kInt64, {}}}, pool),
                                kRows);
  Loader loader(plan, dtypes_of(*plan), {2, 2});
  const Position position{{1, 1}, 0, 0};
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(take(loader, position, milliseconds(5)), nullptr);
  }
  EXPECT_FALSE(make_ready(loader, position, milliseconds(5)));
  release.count_down();
  EXPECT_NE(take(loader, position, kLong), nullptr);
}

TEST(WorkerBatches, StopsEvenIfAWorkerProcessIsStuck) {
  const auto source = std::make_shared<FunctionSource>(
      kSamples, Schema{{"x", DType::kUint8, {24}}},
      std::shared_ptr<WorkerPool>(
          pool_of(Instructions{.mode = "stall", .sample = 5}, {.workers = 2})));
  const auto plan = sample_plan(source, kSamples);
  {
    Loader loader(plan, dtypes_of(*plan), {2, 1});
    EXPECT_EQ(take(loader, {}, milliseconds(50)), nullptr);
  }
  EXPECT_LE(dynamic_cast<ProcessWorkerPool&>(*plan->worker_pool()).pids().size(), 2u);
}

TEST(WorkerBatches, WorkerProcessesMakeTheSpecifiedBatches) {
  const auto source = std::make_shared<FunctionSource>(
      kSamples, Schema{{"x", DType::kUint8, {24}}},
      std::shared_ptr<WorkerPool>(pool_of(Instructions{}, {.workers = 2})));
  const auto plan = sample_plan(source, 7);
  Loader loader(plan, dtypes_of(*plan), {2, 3});
  Position position{{8, 8}, 0, 0};
  for (int i = 0; i < 20; ++i) {
    const auto batch = take(loader, position, kLong);
    ASSERT_NE(batch, nullptr);
    EXPECT_EQ(bytes_of(*plan, *batch), specified(*plan, position));
    position = plan->schedule().next(position);
  }
}

}  // namespace
}  // namespace millstream
