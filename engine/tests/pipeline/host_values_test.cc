#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "loader/deliveries.h"
#include "loader/sample_plan.h"
#include "millstream/core/error.h"
#include "millstream/loader/loader.h"
#include "millstream/source/combine.h"
#include "millstream/source/function.h"
#include "millstream/transform/function.h"
#include "millstream/transform/reshape.h"
#include "millstream/workers/thread_worker_pool.h"
#include "workers/pool_rows.h"

namespace millstream {
namespace {

constexpr auto kLong = std::chrono::minutes(1);
constexpr std::int64_t kSamples = 23;
constexpr std::int64_t kRows = 6;
const Schema kNumber = {{"number", DType::kInt64, {}}};

/// Makes the host value of a sample from the previous one.
using Each = std::function<std::string(std::int64_t sample, const std::string& before)>;

/// A pool that writes the length of each host value to its first column, if any. Rows
/// without a previous value in `given` get an empty one.
std::shared_ptr<WorkerPool> calling(Each each, int workers) {
  ThreadWorkerPool::Function function;
  function.make = [each = std::move(each)](const WorkRequest& chunk,
                                           std::atomic<std::int64_t>& row,
                                           const std::shared_ptr<const void>&) {
    std::map<std::int64_t, std::string> given;
    for (const HostValue& value : chunk.host_values) given[value.row] = value.bytes;
    for (std::int64_t k = 0; k < chunk.rows(); ++k) {
      row.store(k);
      const std::int64_t sample = chunk.indices[static_cast<std::size_t>(k)];
      const std::string value = each(sample, given[chunk.first + k]);
      const auto length = static_cast<std::int64_t>(value.size());
      if (!chunk.output.empty()) {
        std::memcpy(chunk.output[0].row(k), &length, sizeof(length));
      }
      chunk.context.host_values->add({{chunk.first + k, nullptr, value}});
    }
  };
  function.stack_of = [](std::uint64_t) { return std::string(); };
  return std::make_shared<ThreadWorkerPool>(std::move(function), workers,
                                            std::chrono::milliseconds(0));
}

std::string text_of(std::int64_t sample) {
  return std::string(static_cast<std::size_t>(sample), 'a') + std::to_string(sample);
}

std::shared_ptr<const Source> texts() {
  return std::make_shared<FunctionSource>(
      kSamples, Schema{},
      calling([](std::int64_t sample, const std::string&) { return text_of(sample); },
              2));
}

std::shared_ptr<const Transform> stage(const Schema& input, Schema output, Each each,
                                       int workers = 3) {
  return std::make_shared<FunctionTransform>("stage", input, std::move(output),
                                             calling(std::move(each), workers), false);
}

std::string doubled(std::int64_t, const std::string& before) { return before + before; }

std::string marked(std::int64_t sample, const std::string& before) {
  return sample < 0 ? "" : before + "!";
}

std::int64_t number(const Batch& batch, std::int64_t row) {
  std::int64_t value;
  std::memcpy(&value, batch.columns()[0].row(row), sizeof(value));
  return value;
}

std::map<std::int64_t, std::string> by_row(const Batch& batch) {
  std::map<std::int64_t, std::string> found;
  for (const HostValue& value : batch.host_values().values()) {
    EXPECT_TRUE(found.emplace(value.row, value.bytes).second)
        << "two values for row " << value.row;
  }
  return found;
}

TEST(HostValues, PassFromStageToStage) {
  const auto shorter = stage({}, {}, doubled);
  const auto renamed =
      std::make_shared<Rename>(std::map<std::string, std::string>{{"number", "n"}});
  const auto plan = sample_plan(
      texts(), kRows, Remainder::kPad, {shorter, stage({}, kNumber, marked), renamed},
      {stage({{"n", DType::kInt64, {}}}, kNumber, marked, 2)});
  const auto expected = [](std::int64_t sample) {
    return text_of(sample) + text_of(sample) + "!!";
  };
  Loader ahead(plan, dtypes_of(*plan), {2, 3});
  Loader alone(plan, dtypes_of(*plan), {2, 0});
  Position position{{1, 2}, 0, 0};
  for (std::int64_t i = 0; i < 2 * plan->schedule().steps(); ++i) {
    std::vector<std::int64_t> indices(kRows);
    plan->schedule().run(position, 0, indices);
    for (Loader* loader : {&ahead, &alone}) {
      const auto batch = take(*loader, position, kLong);
      ASSERT_NE(batch, nullptr);
      EXPECT_EQ(bytes_of(*plan, *batch), specified(*plan, position));
      const auto values = by_row(*batch);
      for (std::int64_t k = 0; k < kRows; ++k) {
        const std::int64_t sample = indices[static_cast<std::size_t>(k)];
        if (sample < 0) continue;
        EXPECT_EQ(values.at(k), expected(sample));
        EXPECT_EQ(number(*batch, k),
                  static_cast<std::int64_t>(expected(sample).size()));
      }
    }
    position = plan->schedule().next(position);
  }
}

TEST(HostValues, ComeWithSamplesOfConcatenatedSources) {
  const auto both = std::make_shared<Concatenated>(
      std::vector<std::shared_ptr<const Source>>{texts(), texts()});
  const auto plan =
      sample_plan(both, kRows, Remainder::kDrop, {stage({}, kNumber, marked)});
  Loader loader(plan, dtypes_of(*plan), {2, 2});
  Position position{{1, 2}, 0, 0};
  for (int i = 0; i < 5; ++i) {
    std::vector<std::int64_t> indices(kRows);
    plan->schedule().run(position, 0, indices);
    const auto values = by_row(*take(loader, position, kLong));
    for (std::int64_t k = 0; k < kRows; ++k) {
      const std::int64_t sample = indices[static_cast<std::size_t>(k)] % kSamples;
      EXPECT_EQ(values.at(k), text_of(sample) + "!");
    }
    position = plan->schedule().next(position);
  }
}

TEST(HostValues, PassFromWorkerProcessesToWorkerProcesses) {
  const Schema row = {{"x", DType::kUint8, {24}}};
  const auto source = std::make_shared<FunctionSource>(
      kSamples, row,
      std::shared_ptr<WorkerPool>(pool_of({.mode = "host_values"}, {.workers = 2})));
  const auto next = std::make_shared<FunctionTransform>(
      "stage", row, row,
      std::shared_ptr<WorkerPool>(pool_of({.mode = "host_values"}, {.workers = 3})),
      false);
  const auto plan = sample_plan(source, kRows, Remainder::kDrop, {next});
  Loader loader(plan, dtypes_of(*plan), {2, 2});
  Position position{{3, 2}, 0, 0};
  for (int i = 0; i < 3; ++i) {
    std::vector<std::int64_t> indices(kRows);
    plan->schedule().run(position, 0, indices);
    const auto values = by_row(*take(loader, position, kLong));
    for (std::int64_t k = 0; k < kRows; ++k) {
      const std::string word = std::to_string(indices[static_cast<std::size_t>(k)]);
      EXPECT_EQ(values.at(k), word + word);  // each process appends the sample
    }
    position = plan->schedule().next(position);
  }
}

TEST(HostValues, ASkippedRowHasNone) {
  std::atomic<bool> transient = true;
  const auto failing =
      stage({}, kNumber, [&](std::int64_t sample, const std::string& b) {
        if (sample == 5 || sample == 9) throw FunctionError("bad", sample, "", nullptr);
        if (sample == 2 && transient.exchange(false)) {
          throw FunctionError("try again", sample, "", nullptr, true);
        }
        return b;
      });
  Schedule schedule(std::make_shared<Sequential>(kSamples), 12, Remainder::kPad);
  const auto plan = std::make_shared<Plan>(texts(), std::move(schedule),
                                           Transforms{failing}, Transforms{}, true);
  Loader loader(plan, dtypes_of(*plan), {2, 0});
  const auto batch = take(loader, {}, kLong);
  const auto values = by_row(*batch);
  EXPECT_FALSE(transient);
  EXPECT_EQ(values.size(), 10u);
  for (std::int64_t k = 0; k < 12; ++k) {
    const bool bad = k == 5 || k == 9;
    EXPECT_EQ(values.contains(k), !bad);
    EXPECT_EQ(batch->mask()[k], !bad);
    if (bad) continue;
    EXPECT_EQ(values.at(k), text_of(k));
  }
}

}  // namespace
}  // namespace millstream
