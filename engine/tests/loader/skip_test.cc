#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "loader/deliveries.h"
#include "loader/sample_plan.h"
#include "millstream/core/error.h"
#include "millstream/loader/loader.h"
#include "millstream/loader/plan.h"
#include "millstream/transform/normalize.h"

namespace millstream {
namespace {

constexpr auto kLong = std::chrono::minutes(1);

/// Samples that may fail: "x" is the index plus one, as float32.
class FailingSource final : public Source {
 public:
  /// `trouble` is called for each sample before it is read, and may throw.
  FailingSource(std::int64_t size, std::function<void(std::int64_t)> trouble)
      : size_(size), trouble_(std::move(trouble)) {}

  std::int64_t size() const noexcept override { return size_; }
  const Schema& schema() const noexcept override { return schema_; }
  Traits traits() const noexcept override { return {.waits = true, .may_fail = true}; }
  void prepare(std::span<const std::int64_t>) const noexcept override {}
  WorkerPool* worker_pool() const noexcept override { return nullptr; }
  void read(const Request& request, Rows& rows) const override {
    const auto indices = request.indices;
    const auto& [columns, memory] = rows;
    ++calls_;
    for (std::size_t k = 0; k < indices.size(); ++k) {
      trouble_(indices[k]);
      const auto value = static_cast<float>(indices[k] + 1);
      if (columns[0].data == nullptr) columns[0].rows[k] = memory.allocate(4);
      std::memcpy(columns[0].row(static_cast<std::int64_t>(k)), &value, sizeof(value));
    }
  }
  int calls() const { return calls_; }

 private:
  std::int64_t size_;
  std::function<void(std::int64_t)> trouble_;
  Schema schema_{{"x", DType::kFloat32, {}}};
  mutable std::atomic<int> calls_{0};
};

std::shared_ptr<FailingSource> bad_at(std::int64_t size, std::set<std::int64_t> bad) {
  return std::make_shared<FailingSource>(
      size, [bad = std::move(bad)](std::int64_t sample) {
        if (bad.contains(sample)) throw DataError(text("sample ", sample, " is bad"));
      });
}

std::shared_ptr<const Plan> skipping(std::shared_ptr<const Source> source,
                                     std::int64_t rows, Transforms before = {},
                                     Transforms after = {}, bool skip = true) {
  Schedule schedule(std::make_shared<Sequential>(source->size()), rows,
                    Remainder::kPad);
  return std::make_shared<Plan>(std::move(source), std::move(schedule),
                                std::move(before), std::move(after), skip);
}

std::shared_ptr<Batch> empty_batch(const Plan& plan) {
  return std::make_shared<Slots>(Layout(plan.schema(), plan.batch_size()), 0)->take();
}

float value(const Batch& batch, std::int64_t row) {
  float result;
  std::memcpy(&result, batch.columns()[0].row(row), sizeof(result));
  return result;
}

TEST(Skip, RowsThatFailAreZeroAndMasked) {
  const std::set<std::int64_t> bad = {0, 3, 4, 5, 11};
  const auto plan = skipping(bad_at(14, bad), 8);
  for (const std::int64_t step : {0, 1}) {
    const auto batch = empty_batch(*plan);
    plan->batch({{}, 0, step}, batch->columns(), batch->mask());
    for (std::int64_t row = 0; row < 8; ++row) {
      const std::int64_t sample = step * 8 + row;
      const bool there = sample < 14 && !bad.contains(sample);
      EXPECT_EQ(batch->mask()[row], there) << sample;
      EXPECT_EQ(value(*batch, row), there ? static_cast<float>(sample + 1) : 0);
    }
  }
}

TEST(Skip, StagesAfterBatchingSeeZeros) {
  const auto shifted = std::make_shared<Normalize>("x", DType::kFloat32, 1.0, 100.0);
  const auto before = skipping(bad_at(4, {2}), 4, {shifted});
  const auto after = skipping(bad_at(4, {2}), 4, {}, {shifted});
  auto batch = empty_batch(*before);
  before->batch({}, batch->columns(), batch->mask());
  EXPECT_EQ(value(*batch, 1), 102);
  EXPECT_EQ(value(*batch, 2), 0);
  batch = empty_batch(*after);
  after->batch({}, batch->columns(), batch->mask());
  EXPECT_EQ(value(*batch, 1), 102);
  EXPECT_EQ(value(*batch, 2), 100);
  EXPECT_FALSE(batch->mask()[2]);
}

TEST(Skip, OneBadRowCostsALogarithmicNumberOfReads) {
  const auto source = bad_at(64, {37});
  const auto plan = skipping(source, 64);
  const auto batch = empty_batch(*plan);
  plan->batch({}, batch->columns(), batch->mask());
  EXPECT_EQ(source->calls(), 1 + 2 * 6);
}

TEST(Skip, RowRangesEqualTheWholeBatch) {
  const auto plan = skipping(bad_at(23, {1, 2, 9, 22}), 10);
  for (const std::int64_t step : {0, 1, 2}) {
    const auto batch = empty_batch(*plan);
    for (std::int64_t row = 0; row < 10; row += 3) {
      plan->rows({{}, 0, step}, row, std::min<std::int64_t>(3, 10 - row),
                 batch->columns(), batch->mask(), thread_memory());
    }
    EXPECT_EQ(bytes_of(*plan, *batch), specified(*plan, {{}, 0, step}));
  }
}

TEST(Skip, SkipsErrorsOfFunctionsButNotOfTheirSetup) {
  const auto failing = [](std::int64_t named) {
    return std::make_shared<FailingSource>(8, [named](std::int64_t sample) {
      if (sample == 3) throw FunctionError("bad", named, "", nullptr);
    });
  };
  const auto plan = skipping(failing(3), 8);
  const auto batch = empty_batch(*plan);
  plan->batch({}, batch->columns(), batch->mask());
  EXPECT_FALSE(batch->mask()[3]);
  EXPECT_TRUE(batch->mask()[4]);
  const auto setup = skipping(failing(-1), 8);
  EXPECT_THROW(setup->batch({}, batch->columns(), batch->mask()), FunctionError);
}

TEST(Skip, WithoutSkipErrorsAreThrown) {
  const auto plan = skipping(bad_at(8, {3}), 8, {}, {}, /*skip=*/false);
  const auto batch = empty_batch(*plan);
  EXPECT_THROW(plan->batch({}, batch->columns(), batch->mask()), DataError);
}

/// Fails at sample 3 the first `times` times.
template <typename Throw>
std::shared_ptr<FailingSource> failing_at_first(int times, Throw&& fail) {
  return std::make_shared<FailingSource>(
      8, [times, fail, tries = std::make_shared<std::atomic<int>>(0)](auto sample) {
        if (sample == 3 && (*tries)++ < times) fail();
      });
}

template <typename E, typename Throw>
void expect_tried_again(Throw fail) {
  for (const int times : {1, 2}) {
    const auto source = failing_at_first(times, fail);
    const auto plan = skipping(source, 8);
    const auto batch = empty_batch(*plan);
    plan->batch({}, batch->columns(), batch->mask());
    for (std::int64_t row = 0; row < 8; ++row) EXPECT_TRUE(batch->mask()[row]);
    EXPECT_EQ(value(*batch, 3), 4);
    EXPECT_EQ(source->calls(), times + 1);
  }
  const auto hopeless = failing_at_first(1000, fail);
  const auto batch = empty_batch(*skipping(hopeless, 8));
  EXPECT_THROW(skipping(hopeless, 8)->batch({}, batch->columns(), batch->mask()), E);
  EXPECT_EQ(hopeless->calls(), 3);
  const auto plain = failing_at_first(1, fail);
  EXPECT_THROW(skipping(plain, 8, {}, {}, /*skip=*/false)
                   ->batch({}, batch->columns(), batch->mask()),
               E);
  EXPECT_EQ(plain->calls(), 1);
}

TEST(Skip, TransientErrorsAreRetriedAndThenThrown) {
  expect_tried_again<WorkerDied>([] { throw WorkerDied("it died"); });
  expect_tried_again<WorkerStalled>([] { throw WorkerStalled("it stalled"); });
  expect_tried_again<IoError>(
      [] { throw IoError(EIO, {.file = "file", .text = "cannot be read"}); });
  expect_tried_again<FunctionError>([] {
    throw FunctionError("cannot be read", 3, "", nullptr, /*transient=*/true);
  });
}

TEST(Skip, ErrorsThatAreNotAboutASampleAreThrownAtOnce) {
  const auto missing = failing_at_first(
      1, [] { throw IoError(ENOENT, {.file = "file", .text = "is not there"}); });
  const auto batch = empty_batch(*skipping(missing, 8));
  EXPECT_THROW(skipping(missing, 8)->batch({}, batch->columns(), batch->mask()),
               IoError);
  EXPECT_EQ(missing->calls(), 1);
  const auto stopped = failing_at_first(1, [] { throw Cancelled("stopped"); });
  EXPECT_THROW(skipping(stopped, 8)->batch({}, batch->columns(), batch->mask()),
               Cancelled);
}

TEST(Skip, ALoaderListsEachSkippedSampleOnce) {
  const auto plan = skipping(bad_at(40, {7, 21, 22}), 8);
  for (const int prefetch : {0, 3}) {
    for (const int threads : {1, 4}) {
      Loader loader(plan, dtypes_of(*plan), {threads, prefetch, /*budget=*/3});
      Position position{};
      for (int i = 0; i < 15; ++i) {  // three epochs
        const auto batch = take(loader, position, kLong);
        EXPECT_EQ(bytes_of(*plan, *batch), specified(*plan, position));
        position = plan->schedule().next(position);
      }
      const auto skipped = loader.skipped();
      ASSERT_EQ(skipped.size(), 3u);
      EXPECT_EQ(skipped.at(21), "sample 21 is bad");
    }
  }
}

TEST(Skip, MoreThanTheBudgetIsAnError) {
  const auto plan = skipping(bad_at(8, {1, 2, 5}), 8);
  for (const std::int64_t budget : {0, 2}) {
    for (const int prefetch : {0, 1}) {
      Loader loader(plan, dtypes_of(*plan), {1, prefetch, budget});
      try {
        take(loader, {}, kLong);
        FAIL() << "a batch was delivered";
      } catch (const DataError& error) {
        const std::string words = error.what();
        EXPECT_TRUE(words.starts_with(text("sample ", *error.fields().sample,
                                           " failed, and more than the allowed ",
                                           budget, " samples have failed: ")))
            << words;
        EXPECT_TRUE(words.ends_with(" is bad")) << words;
      }
    }
  }
}

TEST(Skip, PrefetchDoesNotChangeWhichBatchExceedsTheBudget) {
  for (const int prefetch : {0, 1, 6}) {
    const auto source = bad_at(40, {7, 17, 18});
    const auto plan = skipping(source, 4);
    Loader loader(plan, dtypes_of(*plan), {2, prefetch, /*budget=*/2});
    Position position{};
    for (int step = 0; step < 4; ++step) {
      EXPECT_NE(take(loader, position, kLong), nullptr);
      while (source->calls() < step + prefetch) std::this_thread::yield();
      EXPECT_EQ(loader.skipped().size(), step == 0 ? 0u : 1u);
      position = plan->schedule().next(position);
    }
    EXPECT_THROW(take(loader, position, kLong), DataError);
    EXPECT_THROW(take(loader, position, kLong), DataError);
    EXPECT_NE(take(loader, plan->schedule().next(position), kLong), nullptr);
  }
}

TEST(Skip, CopiedBatchesCountTowardsTheBudget) {
  const auto plan = skipping(bad_at(40, {1, 9, 10}), 4);
  Loader loader(plan, dtypes_of(*plan), {2, 6, /*budget=*/2});
  const auto batch = empty_batch(*plan);
  fill(loader, {}, batch->columns(), batch->mask());
  EXPECT_EQ(loader.skipped().size(), 1u);
  while (!fill_if_ready(loader, {{}, 0, 1}, batch->columns(), batch->mask())) {
    std::this_thread::yield();
  }
  EXPECT_EQ(loader.skipped().size(), 1u);
  EXPECT_THROW(fill(loader, {{}, 0, 2}, batch->columns(), batch->mask()), DataError);
  EXPECT_THROW(fill_shard(loader, {{}, 0, 2}, {0, 4}, batch->columns(), batch->mask()),
               DataError);
  EXPECT_THROW(loader.deliver({.position = {{}, 0, 2}, .shard = RowRange{0, 4}}),
               DataError);
}

TEST(Skip, ABatchMayLoseAllRows) {
  const auto plan = skipping(bad_at(4, {0, 1, 2, 3}), 4);
  Loader loader(plan, dtypes_of(*plan), {1, 0});
  const auto batch = take(loader, {}, kLong);
  for (std::int64_t row = 0; row < 4; ++row) {
    EXPECT_FALSE(batch->mask()[row]);
    EXPECT_EQ(value(*batch, row), 0);
  }
  EXPECT_EQ(loader.skipped().size(), 4u);
}

}  // namespace
}  // namespace millstream
