#include "millstream/loader/plan.h"

#include <gtest/gtest.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <cstring>
#include <memory>
#include <vector>

#include "loader/sample_plan.h"
#include "millstream/core/error.h"
#include "millstream/loader/state.h"
#include "millstream/source/arrays.h"
#include "millstream/transform/normalize.h"
#include "millstream/transform/reshape.h"

namespace millstream {
namespace {

const float* floats(const Batch& batch, std::size_t field) {
  return reinterpret_cast<const float*>(batch.columns()[field].data);
}

TEST(Plan, PaddingIsZeroAfterBatchingAndLaterStagesTransformIt) {
  const auto source = std::make_shared<CountingSource>(5);
  const auto shifted = [](double offset) {
    return std::make_shared<Normalize>("x", DType::kFloat32, 1.0, offset);
  };
  const Position last{{1, 2}, 0, 1};
  const auto slots_of = [](const Plan& plan) {
    return std::make_shared<Slots>(Layout(plan.schema(), plan.batch_size()), 0);
  };

  const auto before = sample_plan(source, 4, Remainder::kPad, {shifted(100)});
  auto batch = slots_of(*before)->take();
  before->batch(last, batch->columns(), batch->mask());
  EXPECT_TRUE(batch->mask()[0]);
  EXPECT_FALSE(batch->mask()[1]);
  EXPECT_GE(floats(*batch, 0)[0], 100);
  EXPECT_EQ(floats(*batch, 0)[3], 0);

  const auto after = sample_plan(source, 4, Remainder::kPad, {}, {shifted(100)});
  batch = slots_of(*after)->take();
  after->batch(last, batch->columns(), batch->mask());
  EXPECT_EQ(floats(*batch, 0)[3], 100);
}

TEST(Plan, RowRangesTogetherEqualTheBatch) {
  for (const Remainder remainder :
       {Remainder::kPad, Remainder::kDrop, Remainder::kWrap}) {
    const auto plan = sample_plan(std::make_shared<CountingSource>(23), 7, remainder);
    for (std::int64_t step = 0; step < plan->schedule().steps(); ++step) {
      const Position position{{3, 4}, 1, step};
      auto slots = std::make_shared<Slots>(Layout(plan->schema(), 7), 0);
      auto batch = slots->take();
      for (std::int64_t row = 0; row < 7; row += 3) {
        plan->rows(position, row, std::min<std::int64_t>(3, 7 - row), batch->columns(),
                   batch->mask(), thread_memory());
      }
      EXPECT_EQ(bytes_of(*plan, *batch), specified(*plan, position));
    }
  }
}

TEST(Plan, TheDigestDependsOnlyOnTheSamplesAndTheSchedule) {
  const auto digest = [](std::int64_t n, std::int64_t rows, Remainder remainder,
                         Transforms before = {}) {
    return sample_plan(std::make_shared<CountingSource>(n), rows, remainder,
                       std::move(before))
        ->digest();
  };
  const std::uint64_t same = digest(10, 4, Remainder::kPad);
  EXPECT_EQ(same, digest(10, 4, Remainder::kPad));
  EXPECT_EQ(same, digest(10, 4, Remainder::kPad, {std::make_shared<Flatten>("x")}));
  EXPECT_NE(same, digest(11, 4, Remainder::kPad));
  EXPECT_NE(same, digest(10, 5, Remainder::kPad));
  EXPECT_NE(same, digest(10, 4, Remainder::kWrap));
}

TEST(Plan, RejectsAnOrderForAnotherNumberOfSamples) {
  Schedule schedule(std::make_shared<Sequential>(9), 2, Remainder::kPad);
  EXPECT_THROW(Plan(std::make_shared<CountingSource>(10), std::move(schedule), {}, {}),
               ArgumentError);
}

#if defined(__x86_64__)
TEST(Plan, KeepsSubnormalNumbersIfTheCallingThreadFlushesThem) {
  const float tiny = 1e-40f;
  const Array array{{"x", DType::kFloat32, {}},
                    1,
                    reinterpret_cast<const std::byte*>(&tiny),
                    sizeof(float),
                    nullptr};
  const auto plan = sample_plan(
      std::make_shared<ArraysSource>(std::vector{array}), 1, Remainder::kPad,
      {std::make_shared<Normalize>("x", DType::kFloat32, 0.5, 0.0)});
  const auto expected = specified(*plan, {});
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040);  // as XLA's threads do
  const auto flushed = specified(*plan, {});
  EXPECT_EQ(_mm_getcsr() & 0x8040, 0x8040);
  _mm_setcsr(before);
  EXPECT_EQ(flushed, expected);
  float half = 0;
  std::memcpy(&half, expected.data(), sizeof(half));
  EXPECT_GT(half, 0);
}
#endif

TEST(State, RoundTripsAndRejectsStatesOfOtherPlans) {
  const auto plan = sample_plan(std::make_shared<CountingSource>(10), 4);
  const Position position{{5, 6}, 7, 2};
  EXPECT_EQ(decoded(*plan, encoded(*plan, position)), position);

  State other = encoded(*plan, position);
  other[0] ^= 1;
  EXPECT_THROW(decoded(*plan, other), ArgumentError);
  State late = encoded(*plan, position);
  late[4] = 3;
  EXPECT_THROW(decoded(*plan, late), ArgumentError);
  late[4] = 0;
  late[5] = 1;
  EXPECT_THROW(decoded(*plan, late), ArgumentError);
}

}  // namespace
}  // namespace millstream
