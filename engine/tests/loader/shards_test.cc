#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <numeric>
#include <optional>
#include <thread>
#include <vector>

#include "loader/deliveries.h"
#include "loader/sample_plan.h"
#include "millstream/core/error.h"
#include "millstream/loader/answers.h"
#include "millstream/loader/loader.h"
#include "millstream/source/arrays.h"

namespace millstream {
namespace {

constexpr auto kLong = std::chrono::minutes(1);
constexpr std::int64_t kRows = 8;

/// The bytes of a row range as `Plan::batch` makes them: fields, then the mask.
std::vector<std::byte> specified_rows(const Plan& plan, const Position& position,
                                      const RowRange& rows) {
  const Layout layout(plan.schema(), plan.batch_size());
  const std::vector<std::byte> whole = specified(plan, position);
  std::vector<std::byte> found;
  const auto add = [&](std::int64_t offset, std::int64_t row_bytes) {
    const auto* from = whole.data() + offset + rows.first * row_bytes;
    found.insert(found.end(), from, from + rows.count * row_bytes);
  };
  for (std::size_t i = 0; i < plan.schema().size(); ++i) {
    add(layout.offset(i), byte_size(plan.schema()[i]));
  }
  add(layout.mask_offset(), 1);
  return found;
}

std::vector<std::byte> bytes_of_part(const Batch& batch, std::size_t shard,
                                     std::int64_t rows) {
  std::vector<std::byte> found;
  for (const Column& column : batch.columns(shard)) {
    found.insert(found.end(), column.data, column.data + column.stride * rows);
  }
  const auto* mask = reinterpret_cast<const std::byte*>(batch.mask(shard));
  found.insert(found.end(), mask, mask + rows);
  return found;
}

TEST(Layout, AlignsTheRegionOfEachFieldAndShard) {
  const Schema schema{{"x", DType::kInt32, {3}}, {"y", DType::kInt64, {}}};
  const Layout layout(schema, {{2, 3}, {7, 1}});
  EXPECT_EQ(layout.rows(), 4);
  std::vector<std::int64_t> starts;
  for (std::size_t shard = 0; shard < 2; ++shard) {
    for (std::size_t field = 0; field < 2; ++field) {
      starts.push_back(layout.offset(field, shard));
    }
    starts.push_back(layout.mask_offset(shard));
  }
  EXPECT_EQ(starts, (std::vector<std::int64_t>{0, 64, 128, 192, 256, 320}));
  EXPECT_EQ(layout.bytes(), 384);
}

class Sharded : public testing::TestWithParam<bool> {
 protected:
  std::shared_ptr<const Plan> plan(std::int64_t bad_sample = -1) {
    source = std::make_shared<CountingSource>(43, GetParam(), bad_sample);
    return sample_plan(source, kRows);
  }
  std::shared_ptr<CountingSource> source;
};

TEST_P(Sharded, TakesOnlyItsShards) {
  const auto whole = plan();
  const std::vector<RowRange> shards{{2, 2}, {6, 2}};
  for (const int prefetch : {0, 2}) {
    Loader loader(whole, dtypes_of(*whole), {2, prefetch}, {shards, 4});
    Position position{{1, 2}, 0, 0};
    for (std::int64_t i = 0; i < 2 * whole->schedule().steps(); ++i) {
      const auto batch = take(loader, position, kLong);
      ASSERT_NE(batch, nullptr);
      for (std::size_t shard = 0; shard < shards.size(); ++shard) {
        EXPECT_EQ(bytes_of_part(*batch, shard, shards[shard].count),
                  specified_rows(*whole, position, shards[shard]));
      }
      position = whole->schedule().next(position);
    }
  }
}

TEST_P(Sharded, ReadsOnlyTheSamplesOfItsShards) {
  const auto whole = plan();
  Loader loader(whole, dtypes_of(*whole), {1, 0}, {{{2, 2}}, 1});
  for (std::int64_t step = 0; step < 5; ++step) {
    ASSERT_NE(take(loader, {{1, 2}, 0, step}, kLong), nullptr);
  }
  EXPECT_EQ(source->reads(), 10);
  EXPECT_EQ(whole->bytes_read(), 10 * (3 * 4 + 8));
}

TEST_P(Sharded, FillsEveryShardFromManyThreads) {
  const auto whole = plan();
  const std::vector<RowRange> shards{{0, 2}, {2, 2}, {4, 2}, {6, 2}};
  Loader loader(whole, dtypes_of(*whole), {2, 2}, {shards, 8});
  std::vector<std::jthread> threads;
  for (std::size_t shard = 0; shard < 8; ++shard) {  // each shard twice
    threads.emplace_back([&, shard] {
      const RowRange rows = shards[shard % 4];
      auto slots = std::make_shared<Slots>(Layout(whole->schema(), rows.count), 1);
      Position position{{5, 5}, 0, 0};
      for (int i = 0; i < 30; ++i) {
        const auto found = slots->take();
        DeliveryRequest request{.position = position,
                                .output = found->columns(),
                                .mask = found->mask(),
                                .shard = rows,
                                .timeout = std::chrono::milliseconds(0)};
        if (shard % 2 == 0 || !loader.deliver(request)) {
          request.timeout = DeliveryRequest::kNoTimeout;
          loader.deliver(request);
        }
        EXPECT_EQ(bytes_of_part(*found, 0, rows.count),
                  specified_rows(*whole, position, rows));
        position = whole->schedule().next(position);
      }
    });
  }
}

TEST_P(Sharded, RejectsRowsOfOtherProcesses) {
  const auto whole = plan();
  Loader loader(whole, dtypes_of(*whole), {1, 0}, {{{2, 2}}, 1});
  auto slots = std::make_shared<Slots>(Layout(whole->schema(), 2), 0);
  const auto batch = slots->take();
  EXPECT_THROW(fill_shard(loader, {}, {4, 2}, batch->columns(), nullptr),
               ArgumentError);
  EXPECT_THROW(Loader(whole, dtypes_of(*whole), {1, 0}, {{{7, 2}}, 1}), ArgumentError);
  EXPECT_THROW(Loader(whole, dtypes_of(*whole), {1, 0}, {{{-1, 2}}, 1}), ArgumentError);
}

TEST_P(Sharded, CancelsAllShardsOfABatchOrNone) {
  const auto whole = plan();
  Loader loader(whole, dtypes_of(*whole), {1, 2}, {{{0, 4}, {4, 4}}, 2});
  auto slots = std::make_shared<Slots>(Layout(whole->schema(), 4), 0);
  const auto batch = slots->take();
  const Position first{{1, 1}, 0, 0};
  fill_shard(loader, first, {0, 4}, batch->columns(), nullptr);
  loader.cancel();
  fill_shard(loader, first, {4, 4}, batch->columns(), nullptr);  // like the other shard
  const Position second{{1, 1}, 0, 1};
  EXPECT_THROW(fill_shard(loader, second, {0, 4}, batch->columns(), nullptr),
               Cancelled);
  loader.resume();
  EXPECT_THROW(fill_shard(loader, second, {4, 4}, batch->columns(), nullptr),
               Cancelled);
  fill_shard(loader, second, {4, 4}, batch->columns(), nullptr);
}

INSTANTIATE_TEST_SUITE_P(OfSources, Sharded, testing::Bool(),
                         [](const testing::TestParamInfo<bool>& resident) {
                           return resident.param ? "InMemory" : "ThatWait";
                         });

TEST(Shards, AllShardsGetTheErrorOfOne) {
  const auto plan = sample_plan(
      std::make_shared<CountingSource>(40, false, /*bad_sample=*/17), kRows);
  for (const int prefetch : {0, 2}) {
    Loader loader(plan, dtypes_of(*plan), {2, prefetch}, {{{0, 4}, {4, 4}}, 2});
    std::atomic<int> failed{0};
    std::vector<std::jthread> threads;
    for (const std::int64_t first : {0, 4}) {
      threads.emplace_back([&, first] {
        auto slots = std::make_shared<Slots>(Layout(plan->schema(), 4), 0);
        const auto batch = slots->take();
        for (std::int64_t step = 0; step < 5; ++step) {
          try {
            fill_shard(loader, {{4, 4}, 0, step}, {first, 4}, batch->columns(),
                       nullptr);
          } catch (const DataError& error) {
            EXPECT_STREQ(error.what(), "sample 17 is bad");
            ++failed;
          }
        }
      });
    }
    threads.clear();
    EXPECT_EQ(failed, 2);
  }
}

/// Labels 0 to 39, with one that 32 bits cannot hold.
std::shared_ptr<const Plan> plan_of_labels() {
  auto labels = std::make_shared<std::vector<std::int64_t>>(40);
  std::iota(labels->begin(), labels->end(), 0);
  (*labels)[17] = std::int64_t{1} << 40;
  const auto* data = reinterpret_cast<const std::byte*>(labels->data());
  return sample_plan(std::make_shared<ArraysSource>(std::vector<Array>{
                         {{"y", DType::kInt64, {}}, 40, data, 8, labels}}),
                     kRows);
}

TEST(Shards, AllShardsGetTheErrorOfAnIntegerThatDoesNotFit) {
  const auto plan = plan_of_labels();
  EXPECT_FALSE(plan->traits().may_fail);
  EXPECT_FALSE(Loader(plan, dtypes_of(*plan), {2, 2}).traits().may_fail);
  const DType narrow[] = {DType::kInt32};
  for (const int prefetch : {0, 2}) {
    Loader loader(plan, narrow, {2, prefetch}, {{{0, 4}, {4, 4}}, 2});
    EXPECT_TRUE(loader.traits().may_fail);
    std::atomic<int> failed{0};
    std::vector<std::jthread> threads;
    for (const std::int64_t first : {0, 4}) {
      threads.emplace_back([&, first] {
        auto slots = std::make_shared<Slots>(Layout({{"y", DType::kInt32, {}}}, 4), 0);
        const auto batch = slots->take();
        for (std::int64_t step = 0; step < 5; ++step) {
          try {
            fill_shard(loader, {{4, 4}, 0, step}, {first, 4}, batch->columns(),
                       nullptr);
          } catch (const DataError& error) {
            EXPECT_EQ(error.fields().sample, 17);
            ++failed;
          }
        }
      });
    }
    threads.clear();
    EXPECT_EQ(failed, 2);
  }
}

TEST(Answers, AreComputedOnceAndRemovedWhenAllShardsHaveThem) {
  Answers answers(2);
  int found = 0;
  const auto find = [&]() -> Answers::Found {
    ++found;
    return std::shared_ptr<const Batch>();
  };
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(answers.get({{1, 1}, 0, 0}, true, find));
  EXPECT_EQ(found, 2);
}

TEST(Answers, AreNotStoredIfTheyNeedWaiting) {
  Answers answers(2);
  const Position at{{1, 1}, 0, 0};
  EXPECT_FALSE(answers.get(at, false, [] { return std::nullopt; }));
  const auto find = [] { return Answers::Found(std::shared_ptr<const Batch>()); };
  EXPECT_TRUE(answers.get(at, true, find));
  // While one shard computes the answer, a shard that must not wait gets nothing, and
  // another one waits.
  std::atomic<bool> looking{false};
  std::atomic<bool> go_on{false};
  const Position next{{1, 1}, 0, 1};
  const std::jthread first([&] {
    const auto fail = [&]() -> Answers::Found {
      looking = true;
      while (!go_on) std::this_thread::yield();
      throw DataError("bad");
    };
    EXPECT_THROW(answers.get(next, true, fail), DataError);
  });
  while (!looking) std::this_thread::yield();
  EXPECT_FALSE(answers.get(next, false, find));
  go_on = true;
  EXPECT_THROW(answers.get(next, true, find), DataError);
}

TEST(Answers, RemovesOldErrors) {
  Answers answers(2);
  const Position at{{1, 1}, 0, 0};
  const auto fail = []() -> Answers::Found { throw DataError("bad"); };
  const auto find = [] { return Answers::Found(std::shared_ptr<const Batch>()); };
  EXPECT_THROW(answers.get(at, true, fail), DataError);
  const std::chrono::milliseconds impatient{0};
  answers.forget_errors(std::chrono::seconds(60), impatient);
  EXPECT_THROW(answers.get(at, true, find),
               DataError);  // the second shard still gets it
  EXPECT_THROW(answers.get(at, true, fail), DataError);
  answers.forget_errors(std::chrono::seconds(0), impatient);
  EXPECT_TRUE(answers.get(at, true, find));
}

TEST(Answers, WaitsUntilAllShardsHaveReceivedAnError) {
  Answers answers(2);
  const Position at{{1, 1}, 0, 0};
  const auto fail = []() -> Answers::Found { throw DataError("bad"); };
  const auto find = [] { return Answers::Found(std::shared_ptr<const Batch>()); };
  EXPECT_THROW(answers.get(at, true, fail), DataError);
  const std::jthread late([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_THROW(answers.get(at, true, find), DataError);
  });
  answers.forget_errors(std::chrono::minutes(1), std::chrono::minutes(1));
  EXPECT_TRUE(answers.get(at, true, find));  // for the next program
}

TEST(Answers, KeepsALimitedNumber) {
  Answers answers(2);
  int found = 0;
  const auto find = [&]() -> Answers::Found {
    ++found;
    return std::shared_ptr<const Batch>();
  };
  for (std::int64_t step = 0; step < 1000; ++step) {
    answers.get({{1, 1}, 0, step}, true, find);
  }
  answers.get({{1, 1}, 0, 999}, true, find);
  EXPECT_EQ(found, 1000);
  answers.get({{1, 1}, 0, 0}, true, find);
  EXPECT_EQ(found, 1001);
}

}  // namespace
}  // namespace millstream
