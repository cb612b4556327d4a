#include "millstream/ffi/handlers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ffi/fake_runtime.h"
#include "loader/sample_plan.h"
#include "millstream/ffi/registry.h"
#include "millstream/loader/state.h"

namespace millstream {
namespace {

constexpr std::int64_t kRows = 8;

/// The results of one call, for `count` states.
struct Results {
  explicit Results(std::int64_t count, XLA_FFI_DataType type = XLA_FFI_DataType_S64)
      : x(XLA_FFI_DataType_S32, {count, kRows, 3}, 4),
        y(type, {count, kRows}, type == XLA_FFI_DataType_S64 ? 8 : 4),
        mask(XLA_FFI_DataType_PRED, {count, kRows}, 1),
        after(XLA_FFI_DataType_U32, {count, 8}, 4) {}

  std::vector<FakeBuffer*> all() { return {&x, &y, &mask, &after}; }

  FakeBuffer x, y, mask, after;
};

std::string kind_of_source(const testing::TestParamInfo<bool>& resident) {
  return resident.param ? "InMemory" : "ThatWait";
}

class Handlers : public testing::TestWithParam<bool> {
 protected:
  explicit Handlers(std::int64_t bad_sample = -1)
      : plan(sample_plan(std::make_shared<CountingSource>(43, GetParam(), bad_sample),
                         kRows)),
        loader(std::make_shared<Loader>(plan, dtypes_of(*plan), LoaderOptions{2, 2})),
        registration(std::make_unique<Registration>(loader)),
        handler(GetParam() ? batch_in_jit : batch_in_jit_later) {}

  std::vector<std::pair<std::string, std::int64_t>> names() const {
    return {{"digest", static_cast<std::int64_t>(plan->digest())},
            {"plan", registration->serial()}};
  }

  static void set(FakeBuffer& states, std::int64_t k, const State& state) {
    std::ranges::copy(state, states.as<std::uint32_t>() + k * 8);
  }

  std::shared_ptr<const Plan> plan;
  std::shared_ptr<Loader> loader;
  std::unique_ptr<Registration> registration;
  XLA_FFI_Handler* handler;
};

TEST_P(Handlers, DeliverTheSpecifiedBatchesOverSeveralEpochs) {
  FakeBuffer states(XLA_FFI_DataType_U32, {8}, 4);
  Position position{{1, 2}, 0, 0};
  set(states, 0, encoded(*plan, position));
  for (int i = 0; i < 15; ++i) {
    Results results(1);
    ASSERT_EQ(call(handler, {&states}, results.all(), names()), std::nullopt);
    const auto expected = specified(*plan, position);
    EXPECT_TRUE(std::ranges::equal(
        results.x.bytes(), std::span(expected).first(results.x.bytes().size())));
    position = plan->schedule().next(position);
    EXPECT_TRUE(std::ranges::equal(std::span(results.after.as<std::uint32_t>(), 8),
                                   encoded(*plan, position)));
    set(states, 0, encoded(*plan, position));
  }
}

TEST_P(Handlers, AnswerSeveralStatesAtOnce) {
  FakeBuffer states(XLA_FFI_DataType_U32, {3, 8}, 4);
  for (std::uint32_t k = 0; k < 3; ++k) {
    set(states, k, encoded(*plan, {{k, k}, k, k}));
  }
  Results together(3);
  ASSERT_EQ(call(handler, {&states}, together.all(), names()), std::nullopt);
  for (std::uint32_t k = 0; k < 3; ++k) {
    FakeBuffer state(XLA_FFI_DataType_U32, {8}, 4);
    set(state, 0, encoded(*plan, {{k, k}, k, k}));
    Results alone(1);
    ASSERT_EQ(call(handler, {&state}, alone.all(), names()), std::nullopt);
    const std::size_t bytes = alone.x.bytes().size();
    EXPECT_TRUE(std::ranges::equal(
        alone.x.bytes(), std::span(together.x.bytes()).subspan(k * bytes, bytes)));
  }
}

TEST_P(Handlers, ListTheSamplesOfSeveralBatches) {
  FakeBuffer states(XLA_FFI_DataType_U32, {2, 8}, 4);
  FakeBuffer samples(XLA_FFI_DataType_U32, {2, kRows}, 4);
  FakeBuffer mask(XLA_FFI_DataType_PRED, {2, kRows}, 1);
  FakeBuffer after(XLA_FFI_DataType_U32, {2, 8}, 4);
  for (std::uint32_t k = 0; k < 2; ++k) {
    State state = encoded(*plan, {{k, 3}, k, 4 + k});  // the second has padding
    state[7] = 9;
    set(states, k, state);
  }
  ASSERT_EQ(call(indices_in_jit, {&states}, {&samples, &mask, &after}, names()),
            std::nullopt);
  for (std::uint32_t k = 0; k < 2; ++k) {
    const Position position{{k, 3}, k, 4 + k};
    std::vector<std::int64_t> expected(kRows);
    plan->schedule().run(position, 0, expected);
    for (std::int64_t row = 0; row < kRows; ++row) {
      const std::int64_t sample = expected[static_cast<std::size_t>(row)];
      EXPECT_EQ(samples.as<std::uint32_t>()[k * kRows + row], std::max(sample, 0L));
      EXPECT_EQ(mask.as<bool>()[k * kRows + row], sample >= 0);
    }
    State next = encoded(*plan, plan->schedule().next(position));
    next[7] = 9;
    EXPECT_TRUE(
        std::ranges::equal(std::span(after.as<std::uint32_t>() + k * 8, 8), next));
  }
  const std::vector<std::uint32_t> alone(samples.as<std::uint32_t>(),
                                         samples.as<std::uint32_t>() + 2 * kRows);
  FakeBuffer epochs(XLA_FFI_DataType_U32, {2, kRows}, 4);
  ASSERT_EQ(
      call(indices_in_jit, {&states}, {&samples, &epochs, &mask, &after}, names()),
      std::nullopt);
  EXPECT_TRUE(
      std::ranges::equal(std::span(samples.as<std::uint32_t>(), 2 * kRows), alone));
  for (std::uint32_t k = 0; k < 2; ++k) {
    for (std::int64_t row = 0; row < kRows; ++row) {
      EXPECT_EQ(epochs.as<std::uint32_t>()[k * kRows + row], k);
    }
  }
  states.as<std::uint32_t>()[0] ^= 1;  // another check word
  const auto error =
      call(indices_in_jit, {&states}, {&samples, &mask, &after}, names());
  ASSERT_TRUE(error);
  EXPECT_EQ(error->first, XLA_FFI_Error_Code_INVALID_ARGUMENT);
}

TEST_P(Handlers, TakeTheDtypeFromTheResult) {
  FakeBuffer states(XLA_FFI_DataType_U32, {8}, 4);
  set(states, 0, encoded(*plan, {}));
  Results wide(1);
  Results narrow(1, XLA_FFI_DataType_S32);
  ASSERT_EQ(call(handler, {&states}, wide.all(), names()), std::nullopt);
  ASSERT_EQ(call(handler, {&states}, narrow.all(), names()), std::nullopt);
  for (std::int64_t k = 0; k < kRows; ++k) {
    EXPECT_EQ(wide.y.as<std::int64_t>()[k], narrow.y.as<std::int32_t>()[k]);
  }
}

TEST_P(Handlers, TakeTheNumberOfTheLoaderAsAnOperandOnTheHost) {
  FakeBuffer state(XLA_FFI_DataType_U32, {8}, 4);
  FakeBuffer number(XLA_FFI_DataType_U32, {2}, 4);
  set(state, 0, encoded(*plan, {}));
  number.as<std::uint32_t>()[0] = static_cast<std::uint32_t>(registration->serial());
  number.as<std::uint32_t>()[1] = 0;
  Results results(1);
  ASSERT_EQ(call(batches_on_host, {&state, &number}, results.all(), {}), std::nullopt);
  EXPECT_TRUE(std::ranges::equal(std::span(results.after.as<std::uint32_t>(), 8),
                                 encoded(*plan, plan->schedule().next({}))));
  const auto expected = specified(*plan, {});
  EXPECT_TRUE(std::ranges::equal(results.x.bytes(),
                                 std::span(expected).first(results.x.bytes().size())));
}

TEST_P(Handlers, DeliverSeveralBatchesOnTheHostAndHoldThemBack) {
  FakeBuffer state(XLA_FFI_DataType_U32, {8}, 4);
  FakeBuffer number(XLA_FFI_DataType_U32, {2}, 4);
  set(state, 0, encoded(*plan, {}));
  number.as<std::uint32_t>()[0] = static_cast<std::uint32_t>(registration->serial());
  number.as<std::uint32_t>()[1] = 0;
  Results first(1), second(1);
  auto results = first.all();
  results.pop_back();  // only the last batch is followed by a state
  for (FakeBuffer* each : second.all()) results.push_back(each);
  ASSERT_EQ(call(batches_on_host, {&state, &number}, results, {}), std::nullopt);
  const Position next = plan->schedule().next({});
  const Position after = plan->schedule().next(next);
  EXPECT_TRUE(std::ranges::equal(std::span(second.after.as<std::uint32_t>(), 8),
                                 encoded(*plan, after)));
  const auto expected = specified(*plan, next);
  EXPECT_TRUE(std::ranges::equal(second.x.bytes(),
                                 std::span(expected).first(second.x.bytes().size())));
  EXPECT_EQ(loader->delivered(), 1);
  const std::int64_t rows = plan->schedule().valid_rows(next);
  EXPECT_EQ(loader->held_back(), rows);
  loader->hand_out(next);
  EXPECT_EQ(loader->delivered(), 2);
  EXPECT_EQ(loader->held_back(), 0);
}

TEST_P(Handlers, RejectCallsThatDoNotFitThePlan) {
  FakeBuffer states(XLA_FFI_DataType_U32, {8}, 4);
  set(states, 0, encoded(*plan, {}));
  Results results(1);

  auto error =
      call(handler, {&states}, {&results.x, &results.y, &results.after}, names());
  ASSERT_TRUE(error);
  EXPECT_EQ(error->second, "the call has 3 results, the batch needs 4");

  Results two(2);
  error = call(handler, {&states}, two.all(), names());
  ASSERT_TRUE(error);
  EXPECT_EQ(error->second, "result 0 has 48 elements, the batch needs 24");

  auto other = names();
  ++other[0].second;
  error = call(handler, {&states}, results.all(), other);
  ASSERT_TRUE(error);
  EXPECT_EQ(
      error->second,
      "this program was compiled for another pipeline: compile it again with this "
      "DataLoader");

  states.as<std::uint32_t>()[0] ^= 1;
  error = call(handler, {&states}, results.all(), names());
  ASSERT_TRUE(error);
  EXPECT_EQ(error->first, XLA_FFI_Error_Code_INVALID_ARGUMENT);
  EXPECT_NE(error->second.find("another pipeline"), std::string::npos);
  EXPECT_TRUE(loader->last_error());
}

TEST_P(Handlers, ReportThatTheLoaderWasDestroyed) {
  const auto stale = names();
  FakeBuffer states(XLA_FFI_DataType_U32, {8}, 4);
  set(states, 0, encoded(*plan, {}));
  registration.reset();
  loader.reset();
  Results results(1);
  const auto error = call(handler, {&states}, results.all(), stale);
  ASSERT_TRUE(error);
  EXPECT_NE(error->second.find("is gone"), std::string::npos);
}

TEST_P(Handlers, ReportCancellation) {
  FakeBuffer states(XLA_FFI_DataType_U32, {8}, 4);
  set(states, 0, encoded(*plan, {}));
  loader->cancel();
  Results results(1);
  const auto error = call(handler, {&states}, results.all(), names());
  ASSERT_TRUE(error);
  EXPECT_EQ(error->first, XLA_FFI_Error_Code_CANCELLED);
}

TEST_P(Handlers, MayBeCalledFromManyThreads) {
  std::vector<std::jthread> threads;
  for (std::uint32_t seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&, seed] {
      FakeBuffer states(XLA_FFI_DataType_U32, {8}, 4);
      Position position{{seed, 0}, 0, 0};
      for (int i = 0; i < 30; ++i) {
        set(states, 0, encoded(*plan, position));
        Results results(1);
        ASSERT_EQ(call(handler, {&states}, results.all(), names()), std::nullopt);
        const auto expected = specified(*plan, position);
        EXPECT_TRUE(std::ranges::equal(
            results.x.bytes(), std::span(expected).first(results.x.bytes().size())));
        position = plan->schedule().next(position);
      }
    });
  }
}

TEST_P(Handlers, GiveEachShardItsRows) {
  constexpr std::int64_t kShard = 2;
  LocalShards shards{{}, 4};
  for (std::int64_t first = 0; first < kRows; first += kShard) {
    shards.rows.push_back({first, kShard});
  }
  const auto sharded =
      std::make_shared<Loader>(plan, dtypes_of(*plan), LoaderOptions{2, 2}, shards);
  const Registration registered(sharded);
  std::vector<std::pair<std::string, std::int64_t>> attributes{
      {"digest", static_cast<std::int64_t>(plan->digest())},
      {"plan", registered.serial()},
      {"rows", kShard}};
  XLA_FFI_Handler* shard = GetParam() ? shard_in_jit : shard_in_jit_later;
  std::vector<std::jthread> threads;
  for (std::uint32_t number = 0; number < 4; ++number) {
    threads.emplace_back([&, number] {
      FakeBuffer states(XLA_FFI_DataType_U32, {2, 8}, 4);
      FakeBuffer numbers(XLA_FFI_DataType_U32, {2}, 4);
      numbers.as<std::uint32_t>()[0] = numbers.as<std::uint32_t>()[1] = number;
      for (std::uint32_t step = 0; step < 5; ++step) {
        for (std::uint32_t k = 0; k < 2; ++k) {
          set(states, k, encoded(*plan, {{k, 3}, 1, step}));
        }
        FakeBuffer x(XLA_FFI_DataType_S32, {2, kShard, 3}, 4);
        FakeBuffer y(XLA_FFI_DataType_S64, {2, kShard}, 8);
        FakeBuffer mask(XLA_FFI_DataType_PRED, {2, kShard}, 1);
        FakeBuffer after(XLA_FFI_DataType_U32, {2, 8}, 4);
        ASSERT_EQ(call(shard, {&states, &numbers}, {&x, &y, &mask, &after}, attributes),
                  std::nullopt);
        for (std::uint32_t k = 0; k < 2; ++k) {
          const auto whole = specified(*plan, {{k, 3}, 1, step});
          const std::size_t bytes = kShard * 3 * 4;
          EXPECT_TRUE(
              std::ranges::equal(std::span(x.bytes()).subspan(k * bytes, bytes),
                                 std::span(whole).subspan(number * bytes, bytes)));
        }
      }
    });
  }
  threads.clear();

  FakeBuffer states(XLA_FFI_DataType_U32, {8}, 4);
  set(states, 0, encoded(*plan, {}));
  FakeBuffer number(XLA_FFI_DataType_U32, {}, 4);
  number.as<std::uint32_t>()[0] = 4;
  FakeBuffer x(XLA_FFI_DataType_S32, {kShard, 3}, 4);
  FakeBuffer y(XLA_FFI_DataType_S64, {kShard}, 8);
  FakeBuffer mask(XLA_FFI_DataType_PRED, {kShard}, 1);
  FakeBuffer after(XLA_FFI_DataType_U32, {8}, 4);
  const auto error =
      call(shard, {&states, &number}, {&x, &y, &mask, &after}, attributes);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->second, "rows [8, 10) are not one of the shards of this process");
}

INSTANTIATE_TEST_SUITE_P(OfSources, Handlers, testing::Bool(), kind_of_source);

class FailingHandlers : public Handlers {
 protected:
  FailingHandlers() : Handlers(/*bad_sample=*/17) {}
};

TEST_P(FailingHandlers, ReportTheSampleAndKeepTheLastError) {
  FakeBuffer states(XLA_FFI_DataType_U32, {8}, 4);
  int failed = 0;
  for (std::int64_t step = 0; step < plan->schedule().steps(); ++step) {
    set(states, 0, encoded(*plan, {{3, 3}, 0, step}));
    Results results(1);
    const auto error = call(handler, {&states}, results.all(), names());
    if (!error) continue;
    ++failed;
    EXPECT_EQ(error->first, XLA_FFI_Error_Code_DATA_LOSS);
    EXPECT_EQ(error->second, "sample 17 is bad");
  }
  EXPECT_EQ(failed, 1);
  EXPECT_THROW(std::rethrow_exception(loader->last_error()), DataError);
}

INSTANTIATE_TEST_SUITE_P(OfSources, FailingHandlers, testing::Bool(), kind_of_source);

}  // namespace
}  // namespace millstream
