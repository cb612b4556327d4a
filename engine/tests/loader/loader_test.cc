#include "millstream/loader/loader.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "loader/deliveries.h"
#include "loader/sample_plan.h"
#include "millstream/core/error.h"

namespace millstream {
namespace {

constexpr auto kLong = std::chrono::minutes(1);

TEST(Loader, BatchesEqualTheSpecificationForAllOptions) {
  const auto plan = sample_plan(std::make_shared<CountingSource>(103), 8);
  for (const int threads : {1, 2, 8}) {
    for (const int prefetch : {0, 1, 5}) {
      Loader loader(plan, dtypes_of(*plan), {threads, prefetch});
      Position position{{1, 2}, 0, 0};
      for (std::int64_t i = 0; i < 3 * plan->schedule().steps(); ++i) {
        const auto batch = take(loader, position, kLong);
        ASSERT_NE(batch, nullptr);
        EXPECT_EQ(bytes_of(*plan, *batch), specified(*plan, position));
        position = plan->schedule().next(position);
      }
    }
  }
}

TEST(Loader, FillsTheSameBytesAsTake) {
  const auto plan = sample_plan(std::make_shared<CountingSource>(50), 8);
  Loader loader(plan, dtypes_of(*plan), {2, 3});
  ASSERT_FALSE(loader.plan().traits().immediate());
  auto slots = std::make_shared<Slots>(Layout(plan->schema(), 8), 0);
  // Backwards, as with rematerialisation.
  for (std::int64_t step = plan->schedule().steps() - 1; step >= 0; --step) {
    auto batch = slots->take();
    const Position position{{9, 9}, 0, step};
    fill(loader, position, batch->columns(), batch->mask());
    EXPECT_EQ(bytes_of(*plan, *batch), specified(*plan, position));
  }
}

TEST(Loader, ServesManyThreadsAndSeeds) {
  const auto plan = sample_plan(std::make_shared<CountingSource>(77), 5);
  Loader loader(plan, dtypes_of(*plan), {3, 2});
  std::vector<std::jthread> threads;
  for (std::uint32_t seed = 0; seed < 6; ++seed) {
    threads.emplace_back([&, seed] {
      Position position{{seed / 2, 0}, 0, 0};  // two threads per stream
      for (int i = 0; i < 40; ++i) {
        const auto batch = take(loader, position, kLong);
        ASSERT_NE(batch, nullptr);
        EXPECT_EQ(bytes_of(*plan, *batch), specified(*plan, position));
        position = plan->schedule().next(position);
      }
    });
  }
}

TEST(Loader, PrefetchingReadsEachSampleOnce) {
  const auto source = std::make_shared<CountingSource>(64);
  const auto plan = sample_plan(source, 8);
  Loader loader(plan, dtypes_of(*plan), {2, 2});
  Position position{{1, 1}, 0, 0};
  for (int i = 0; i < 8; ++i) {
    ASSERT_NE(take(loader, position, kLong), nullptr);
    position = plan->schedule().next(position);
  }
  EXPECT_LE(source->reads(), 64 + 2 * 8);
}

TEST(Loader, RethrowsOnlyToTheCallerOfTheFailedBatch) {
  const auto plan =
      sample_plan(std::make_shared<CountingSource>(40, false, /*bad_sample=*/17), 8);
  Loader loader(plan, dtypes_of(*plan), {2, 3});
  int failed = 0;
  Position position{{4, 4}, 0, 0};
  for (int i = 0; i < 5; ++i) {
    try {
      const auto batch = take(loader, position, kLong);
      EXPECT_EQ(bytes_of(*plan, *batch), specified(*plan, position));
    } catch (const DataError& error) {
      EXPECT_STREQ(error.what(), "sample 17 is bad");
      ++failed;
    }
    position = plan->schedule().next(position);
  }
  EXPECT_EQ(failed, 1);
}

TEST(Loader, BatchesThatCallersKeepStayValid) {
  const auto plan = sample_plan(std::make_shared<CountingSource>(400), 8);
  Loader loader(plan, dtypes_of(*plan), {2, 2});
  std::vector<std::shared_ptr<const Batch>> kept;
  Position position{{4, 4}, 0, 0};
  for (int i = 0; i < 50; ++i) {
    kept.push_back(take(loader, position, kLong));
    position = plan->schedule().next(position);
  }
  EXPECT_GE(loader.live(), 50);
  position = {{4, 4}, 0, 0};
  for (const auto& batch : kept) {
    EXPECT_EQ(bytes_of(*plan, *batch), specified(*plan, position));
    position = plan->schedule().next(position);
  }
  kept.clear();
  // Threads may still be making batches ahead.
  for (int i = 0; i < 1000 && loader.live() > 4; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_LE(loader.live(), 4);
}

TEST(Loader, BatchesOutliveTheLoader) {
  const auto plan = sample_plan(std::make_shared<CountingSource>(40), 8);
  std::shared_ptr<const Batch> batch;
  {
    Loader loader(plan, dtypes_of(*plan), {2, 4});
    batch = take(loader, {{1, 1}, 0, 0}, kLong);
  }
  EXPECT_EQ(bytes_of(*plan, *batch), specified(*plan, {{1, 1}, 0, 0}));
}

TEST(Loader, StopsWhileBatchesAreBeingMade) {
  const auto plan = sample_plan(std::make_shared<CountingSource>(4000), 8);
  for (int i = 0; i < 50; ++i) {
    Loader loader(plan, dtypes_of(*plan), {4, 16});
    ASSERT_NE(take(loader, {{1, 1}, 0, i}, kLong), nullptr);
  }
}

TEST(Loader, CancelsUntilResumed) {
  const auto plan = sample_plan(std::make_shared<CountingSource>(40, true), 8);
  Loader loader(plan, dtypes_of(*plan), {});
  auto slots = std::make_shared<Slots>(Layout(plan->schema(), 8), 0);
  auto batch = slots->take();
  loader.cancel();
  EXPECT_THROW(fill(loader, {}, batch->columns(), nullptr), Cancelled);
  loader.resume();
  fill(loader, {}, batch->columns(), batch->mask());
  EXPECT_EQ(bytes_of(*plan, *batch), specified(*plan, {}));
}

TEST(Loader, SplitsALargeBatchAmongThreads) {
  const auto plan =
      sample_plan(std::make_shared<CountingSource>(200'000, true), 100'000);
  Loader loader(plan, dtypes_of(*plan), {4, 0});
  auto slots = std::make_shared<Slots>(Layout(plan->schema(), 100'000), 0);
  auto batch = slots->take();
  fill(loader, {{5, 5}, 2, 1}, batch->columns(), batch->mask());
  EXPECT_EQ(bytes_of(*plan, *batch), specified(*plan, {{5, 5}, 2, 1}));
}

TEST(Loader, RejectsBadOptions) {
  const auto plan = sample_plan(std::make_shared<CountingSource>(40), 8);
  EXPECT_THROW(Loader(plan, dtypes_of(*plan), {-1, 0}), ArgumentError);
  EXPECT_THROW(Loader(plan, std::vector{DType::kInt32}, {}), ArgumentError);
  const auto large = sample_plan(std::make_shared<CountingSource>(10), 1 << 30);
  EXPECT_THROW(Loader(large, dtypes_of(*large), {1, 1 << 16}), ArgumentError);
}

}  // namespace
}  // namespace millstream
