#include "millstream/loader/prefetcher.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <latch>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "loader/deliveries.h"
#include "loader/sample_plan.h"
#include "millstream/loader/loader.h"

namespace millstream {
namespace {

using std::chrono::milliseconds;
constexpr auto kLong = std::chrono::minutes(1);
constexpr std::int64_t kSamples = 60;
constexpr std::int64_t kRows = 6;

/// Counts how often each batch is read, by its samples. It is slow, so that the loader
/// reads ahead.
class RememberingSource final : public Source {
 public:
  std::int64_t size() const noexcept override { return kSamples; }
  const Schema& schema() const noexcept override { return schema_; }
  Traits traits() const noexcept override { return {.waits = true, .may_fail = true}; }
  WorkerPool* worker_pool() const noexcept override { return nullptr; }
  void read(const Request& request, Rows& rows) const override {
    const auto indices = request.indices;
    const auto columns = rows.columns;
    {
      const std::lock_guard lock(mutex_);
      ++times_[{indices.begin(), indices.end()}];
    }
    std::this_thread::sleep_for(milliseconds(1));
    for (std::size_t k = 0; k < indices.size(); ++k) {
      std::memcpy(columns[0].row(static_cast<std::int64_t>(k)), &indices[k], 8);
    }
  }

  void prepare(std::span<const std::int64_t> indices) const noexcept override {
    const std::lock_guard lock(mutex_);
    const std::vector<std::int64_t> samples(indices.begin(), indices.end());
    if (!times_.contains(samples)) hinted_.insert(samples);
  }

  std::size_t batches() const {
    const std::lock_guard lock(mutex_);
    return times_.size();
  }
  /// How many batches it got a hint about before they were read.
  std::size_t hinted() const {
    const std::lock_guard lock(mutex_);
    return hinted_.size();
  }
  /// How often the most frequently read batch was read.
  int most() const {
    const std::lock_guard lock(mutex_);
    int most = 0;
    for (const auto& [samples, times] : times_) most = std::max(most, times);
    return most;
  }

 private:
  Schema schema_{{"x", DType::kInt64, {}}};
  mutable std::mutex mutex_;
  mutable std::map<std::vector<std::int64_t>, int> times_;
  mutable std::set<std::vector<std::int64_t>> hinted_;
};

/// Takes `steps` batches with `next` and compares each with the specification.
template <typename Next>
void walk(const Plan& plan, int steps, const Next& next) {
  const auto slots = std::make_shared<Slots>(Layout(plan.schema(), kRows), 0);
  Position position{{1, 2}, 0, 0};
  for (int i = 0; i < steps; ++i) {
    auto batch = slots->take();
    next(position, *batch);
    std::vector<std::int64_t> expected(kRows);
    plan.schedule().run(position, 0, expected);
    ASSERT_EQ(std::memcmp(batch->columns()[0].data, expected.data(), kRows * 8), 0);
    position = plan.schedule().next(position);
  }
}

TEST(Prefetcher, MakesEachBatchOnceForACallerThatGoesForwards) {
  constexpr int kSteps = 25;  // two epochs and a half
  for (const int threads : {1, 2, 4}) {
    for (const int ahead : {1, 2, 5}) {
      const auto source = std::make_shared<RememberingSource>();
      const auto plan = sample_plan(source, kRows);
      {
        Loader loader(plan, dtypes_of(*plan), {threads, ahead});
        ASSERT_FALSE(loader.plan().traits().immediate());
        walk(*plan, kSteps, [&](const Position& at, Batch& batch) {
          fill(loader, at, batch.columns(), batch.mask());
        });
      }
      EXPECT_EQ(source->most(), 1) << threads << " threads, " << ahead << " ahead";
      EXPECT_GE(source->batches(), static_cast<std::size_t>(kSteps));
      EXPECT_LE(source->batches(), static_cast<std::size_t>(kSteps + ahead));
    }
  }
}

TEST(Prefetcher, GivesTheSourceAHintLongBeforeABatchIsRead) {
  constexpr int kSteps = 20;
  const auto source = std::make_shared<RememberingSource>();
  const auto plan = sample_plan(source, kRows);
  {
    Loader loader(plan, dtypes_of(*plan), {2, 2});
    walk(*plan, kSteps, [&](const Position& at, Batch& batch) {
      fill(loader, at, batch.columns(), batch.mask());
    });
  }
  EXPECT_GE(source->hinted(),
            static_cast<std::size_t>(kSteps));  // including the first batches
}

/// A hint blocks until `release`, except for the first few samples.
class ReluctantSource final : public Source {
 public:
  std::int64_t size() const noexcept override { return kSamples; }
  const Schema& schema() const noexcept override { return schema_; }
  Traits traits() const noexcept override { return {.waits = true, .may_fail = true}; }
  WorkerPool* worker_pool() const noexcept override { return nullptr; }
  void read(const Request& request, Rows& rows) const override {
    const auto indices = request.indices;
    const auto columns = rows.columns;
    std::memcpy(columns[0].row(0), indices.data(), 8);
    reads_.count_down();
  }
  void prepare(std::span<const std::int64_t> indices) const noexcept override {
    if (indices[0] > kAhead) release_.wait();
  }
  bool read_all() const { return reads_.try_wait(); }
  void release() { release_.count_down(); }

  static constexpr int kAhead = 2;

 private:
  Schema schema_{{"x", DType::kInt64, {}}};
  mutable std::latch reads_{kAhead + 1};
  mutable std::latch release_{1};
};

TEST(Prefetcher, ABatchDoesNotWaitForHintsAboutOtherBatches) {
  const auto source = std::make_shared<ReluctantSource>();
  Schedule schedule(std::make_shared<Sequential>(kSamples), 1, Remainder::kPad);
  const auto plan = std::make_shared<const Plan>(source, std::move(schedule),
                                                 Transforms{}, Transforms{});
  Loader loader(plan, dtypes_of(*plan), {2, ReluctantSource::kAhead});
  EXPECT_TRUE(make_ready(loader, {{1, 2}, 0, 0}, kLong));
  const auto deadline = std::chrono::steady_clock::now() + kLong;
  while (!source->read_all() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_TRUE(source->read_all());
  source->release();
}

TEST(Prefetcher, MakesEachBatchOnceForACallerThatPolls) {
  const auto source = std::make_shared<RememberingSource>();
  const auto plan = sample_plan(source, kRows);
  {
    Loader loader(plan, dtypes_of(*plan), {2, 2});
    walk(*plan, 25, [&](const Position& at, Batch& batch) {
      while (!fill_if_ready(loader, at, batch.columns(), batch.mask())) {
        make_ready(loader, at, milliseconds(1));
      }
    });
    EXPECT_EQ(loader.delivered(), 25);
  }
  EXPECT_EQ(source->most(), 1);
}

/// Counts how often each batch is read, by its first sample. Reads of the first half
/// block until `release`, except for the first batch.
class GatedSource final : public Source {
 public:
  std::int64_t size() const noexcept override { return kSamples; }
  const Schema& schema() const noexcept override { return schema_; }
  Traits traits() const noexcept override { return {.waits = true, .may_fail = true}; }
  void prepare(std::span<const std::int64_t>) const noexcept override {}
  WorkerPool* worker_pool() const noexcept override { return nullptr; }
  void read(const Request& request, Rows& rows) const override {
    const auto indices = request.indices;
    const auto columns = rows.columns;
    {
      const std::lock_guard lock(mutex_);
      ++times_[indices[0]];
    }
    if (indices[0] > 0 && indices[0] < kSamples / 2) release_.wait();
    for (std::size_t k = 0; k < indices.size(); ++k) {
      std::memcpy(columns[0].row(static_cast<std::int64_t>(k)), &indices[k], 8);
    }
  }
  void release() { release_.count_down(); }
  std::map<std::int64_t, int> times() const {
    const std::lock_guard lock(mutex_);
    return times_;
  }

 private:
  Schema schema_{{"x", DType::kInt64, {}}};
  mutable std::mutex mutex_;
  mutable std::map<std::int64_t, int> times_;
  mutable std::latch release_{1};
};

TEST(Prefetcher, DropsQueuedBatchesOfAnAbandonedStream) {
  const auto source = std::make_shared<GatedSource>();
  Schedule schedule(std::make_shared<Sequential>(kSamples), kRows, Remainder::kPad);
  const auto plan = std::make_shared<const Plan>(source, std::move(schedule),
                                                 Transforms{}, Transforms{});
  {
    Loader loader(plan, dtypes_of(*plan), {1, 4});
    EXPECT_NE(take(loader, {{}, 0, 0}, kLong), nullptr);
    loader.abandon({{}, 0, 1});
    take(loader, {{}, 0, 6}, milliseconds(1));
    source->release();
    EXPECT_NE(take(loader, {{}, 0, 6}, kLong), nullptr);
    EXPECT_NE(take(loader, {{}, 0, 7}, kLong), nullptr);
  }
  // At most two of them had started.
  const auto times = source->times();
  for (const std::int64_t step : {3, 4}) EXPECT_FALSE(times.contains(step * kRows));
}

TEST(Prefetcher, KeepsQueuedBatchesIfACallerContinuesAnAbandonedStream) {
  const auto source = std::make_shared<GatedSource>();
  Schedule schedule(std::make_shared<Sequential>(kSamples), kRows, Remainder::kPad);
  const auto plan = std::make_shared<const Plan>(source, std::move(schedule),
                                                 Transforms{}, Transforms{});
  source->release();
  {
    Loader loader(plan, dtypes_of(*plan), {2, 4});
    for (std::int64_t step = 0; step < 10; ++step) {
      loader.abandon({{}, 0, step});
      EXPECT_NE(take(loader, {{}, 0, step}, kLong), nullptr);
      loader.abandon({{}, 0, step + 1});
    }
  }
  // Prefetching also reads the first batches of the next epoch, which have the same
  // samples.
  for (const auto& [first, times] : source->times()) {
    EXPECT_LE(times, first < 4 * kRows ? 2 : 1) << first;
  }
}

TEST(Prefetcher, ARequestedBatchIsNotEvictedBeforeBatchesOfEndedStreams) {
  const auto source = std::make_shared<RememberingSource>();
  const auto plan = sample_plan(source, kRows);
  Loader loader(plan, dtypes_of(*plan), {2, 4});
  const auto batch = std::make_shared<Slots>(Layout(plan->schema(), kRows), 0)->take();
  for (std::uint32_t seed = 0; seed < 6; ++seed) {
    Position position{{seed, 0}, 0, 0};
    for (int step = 0; step < 10; ++step) {
      EXPECT_TRUE(make_ready(loader, position, kLong));
      EXPECT_TRUE(fill_if_ready(loader, position, batch->columns(), batch->mask()));
      position = plan->schedule().next(position);
    }
  }
  EXPECT_EQ(source->most(), 1);
}

TEST(Prefetcher, MakesEachBatchOnceForTwoAlternatingSeeds) {
  const auto source = std::make_shared<RememberingSource>();
  const auto plan = sample_plan(source, kRows);
  {
    Loader loader(plan, dtypes_of(*plan), {2, 3});
    const auto slots = std::make_shared<Slots>(Layout(plan->schema(), kRows), 0);
    Position position{{0, 0}, 0, 0};
    for (int i = 0; i < 15; ++i) {
      for (const std::uint32_t seed : {3u, 4u}) {
        position.seed = {seed, 0};
        auto batch = slots->take();
        fill(loader, position, batch->columns(), batch->mask());
      }
      position = plan->schedule().next(position);
    }
  }
  EXPECT_EQ(source->most(), 1);
}

TEST(Prefetcher, ReadsFewBatchesTwiceForManyStreamsWithOneSeed) {
  constexpr int kWalkers = 7;
  constexpr int kSteps = 30;
  const auto source = std::make_shared<CountingSource>(6000);
  const auto plan = sample_plan(source, kRows);
  Loader loader(plan, dtypes_of(*plan), {2, 2});
  std::vector<Position> walkers;
  for (int i = 0; i < kWalkers; ++i) walkers.push_back({{1, 2}, 0, i * 100});
  for (int step = 0; step < kSteps; ++step) {
    for (Position& at : walkers) {
      const auto batch = take(loader, at, kLong);
      EXPECT_EQ(bytes_of(*plan, *batch), specified(*plan, at));
      at = plan->schedule().next(at);
    }
  }
  EXPECT_LT(loader.live(), kWalkers * 3 + 8);
  // `specified` reads each batch once more.
  EXPECT_LT(source->reads(), (2 * kWalkers * kSteps + kWalkers * 8) * kRows);
}

TEST(Prefetcher, KeepsNoBatchesOfEndedStreams) {
  const auto source = std::make_shared<RememberingSource>();
  const auto plan = sample_plan(source, kRows);
  Loader loader(plan, dtypes_of(*plan), {2, 2});
  for (std::uint32_t walk = 0; walk < 20; ++walk) {
    Position at{{1, 2}, walk * 10, 0};
    for (int step = 0; step < 5; ++step) {
      ASSERT_NE(take(loader, at, kLong), nullptr);
      at = plan->schedule().next(at);
    }
  }
  EXPECT_LE(loader.live(), 20);
}

TEST(Prefetcher, WorksAfterManyJumps) {
  const auto source = std::make_shared<RememberingSource>();
  const auto plan = sample_plan(source, kRows);
  Loader loader(plan, dtypes_of(*plan), {2, 2});
  const auto slots = std::make_shared<Slots>(Layout(plan->schema(), kRows), 0);
  for (std::uint32_t i = 0; i < 40; ++i) {  // no caller asks for the prefetched batches
    const Position position{{5, 5}, i * 3, (i * 7) % plan->schedule().steps()};
    auto batch = slots->take();
    fill(loader, position, batch->columns(), batch->mask());
    EXPECT_EQ(bytes_of(*plan, *batch), specified(*plan, position));
  }
  EXPECT_LE(loader.live(), 8);  // they are soon evicted
}

/// A disk that fails until `fails` is cleared, and counts reads.
class FailingDisk final : public Source {
 public:
  std::int64_t size() const noexcept override { return kSamples; }
  const Schema& schema() const noexcept override { return schema_; }
  Traits traits() const noexcept override { return {.waits = true, .may_fail = true}; }
  void prepare(std::span<const std::int64_t>) const noexcept override {}
  WorkerPool* worker_pool() const noexcept override { return nullptr; }
  void read(const Request& request, Rows& rows) const override {
    const auto indices = request.indices;
    const auto columns = rows.columns;
    reads.fetch_add(1);
    if (fails) throw IoError(EIO, {.file = "disk", .text = "cannot be read"});
    for (std::size_t k = 0; k < indices.size(); ++k) {
      std::memcpy(columns[0].row(static_cast<std::int64_t>(k)), &indices[k], 8);
    }
  }

  std::atomic<bool> fails = true;
  mutable std::atomic<int> reads = 0;

 private:
  Schema schema_{{"x", DType::kInt64, {}}};
};

TEST(Prefetcher, RetriesABatchWhosePrefetchFailed) {
  constexpr int kAhead = 3;
  const auto source = std::make_shared<FailingDisk>();
  const auto plan = sample_plan(source, kRows);
  Loader loader(plan, dtypes_of(*plan), {2, kAhead});
  Position position{{1, 2}, 0, 0};
  EXPECT_THROW(take(loader, position, kLong), IoError);
  const auto deadline = std::chrono::steady_clock::now() + kLong;
  while (source->reads < kAhead + 1 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(source->reads, kAhead + 1);
  source->fails = false;
  for (int i = 0; i <= kAhead; ++i) {
    const auto batch = take(loader, position, kLong);
    ASSERT_NE(batch, nullptr);
    EXPECT_EQ(bytes_of(*plan, *batch), specified(*plan, position));
    position = plan->schedule().next(position);
  }
}

/// A disk whose reads block until `release`.
class StuckDisk final : public Source {
 public:
  std::int64_t size() const noexcept override { return kSamples; }
  const Schema& schema() const noexcept override { return schema_; }
  Traits traits() const noexcept override { return {.waits = true, .may_fail = true}; }
  void prepare(std::span<const std::int64_t>) const noexcept override {}
  WorkerPool* worker_pool() const noexcept override { return nullptr; }
  void read(const Request& request, Rows& rows) const override {
    const auto indices = request.indices;
    const auto columns = rows.columns;
    release.wait();
    for (std::size_t k = 0; k < indices.size(); ++k) {
      std::memcpy(columns[0].row(static_cast<std::int64_t>(k)), &indices[k], 8);
    }
  }

  mutable std::latch release{1};

 private:
  Schema schema_{{"x", DType::kInt64, {}}};
};

TEST(Prefetcher, ACallerMayStopWaitingForADisk) {
  const auto source = std::make_shared<StuckDisk>();
  const auto plan = sample_plan(source, kRows);
  Loader loader(plan, dtypes_of(*plan), {2, 2});
  const Position position{{1, 1}, 0, 0};
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(take(loader, position, milliseconds(5)), nullptr);
  }
  source->release.count_down();
  EXPECT_NE(take(loader, position, kLong), nullptr);
}

TEST(Prefetcher, WithoutPrefetchTheSourceGetsAHintWhenABatchIsMade) {
  constexpr int kSteps = 5;
  const auto source = std::make_shared<RememberingSource>();
  const auto plan = sample_plan(source, kRows);
  Loader loader(plan, dtypes_of(*plan), {1, 0});
  walk(*plan, kSteps, [&](const Position& at, Batch& batch) {
    fill(loader, at, batch.columns(), batch.mask());
  });
  EXPECT_EQ(source->hinted(), static_cast<std::size_t>(kSteps));
}

}  // namespace
}  // namespace millstream
