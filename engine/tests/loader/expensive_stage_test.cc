#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "loader/deliveries.h"
#include "loader/sample_plan.h"
#include "millstream/loader/loader.h"

namespace millstream {
namespace {

constexpr std::int64_t kSamples = 60;
constexpr std::int64_t kRows = 6;
constexpr int kSteps = 20;

/// Copies "x" slowly, and records the threads that apply it.
class SlowCopy final : public Transform {
 public:
  explicit SlowCopy(bool cheap) : cheap_(cheap) {}

  std::string str() const override { return "slow_copy(x)"; }
  StageKind kind() const noexcept override { return StageKind::kFunction; }
  bool draws() const noexcept override { return false; }
  Flow flow(const Schema& input) const override {
    Flow flow = passing(input);
    flow.from[0] = Flow::kMade;
    return flow;
  }
  Traits traits() const noexcept override { return {.cheap = cheap_}; }
  WorkerPool* worker_pool() const noexcept override { return nullptr; }
  void apply(const Flow&, const Request& request, const Rows& in,
             Rows& out) const override {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (std::int64_t k = 0; k < request.rows(); ++k) {
      std::memcpy(out.columns[0].row(k), in.columns[0].row(k),
                  static_cast<std::size_t>(in.columns[0].row_bytes()));
    }
    const std::lock_guard lock(mutex_);
    threads_.insert(std::this_thread::get_id());
  }

  std::set<std::thread::id> threads() const {
    const std::lock_guard lock(mutex_);
    return threads_;
  }

 private:
  const bool cheap_;
  mutable std::mutex mutex_;
  mutable std::set<std::thread::id> threads_;
};

/// The threads that apply the stage while the calling thread takes batches of samples
/// in memory.
std::set<std::thread::id> threads_that_apply(bool cheap) {
  const auto stage = std::make_shared<SlowCopy>(cheap);
  const auto plan =
      sample_plan(std::make_shared<CountingSource>(kSamples, /*resident=*/true), kRows,
                  Remainder::kPad, {stage});
  EXPECT_EQ(plan->traits(), (Traits{.cheap = cheap}));
  Loader loader(plan, dtypes_of(*plan), {2, 2});
  const Layout layout(plan->schema(), kRows);
  const Batch batch(layout, std::make_shared<const Block>(layout.bytes()));
  Position position{{1, 2}, 0, 0};
  for (int step = 0; step < kSteps; ++step) {
    fill(loader, position, batch.columns(), batch.mask());
    position = plan->schedule().next(position);
  }
  return stage->threads();
}

TEST(ExpensiveStage, IsNotAppliedByTheCallingThread) {
  EXPECT_FALSE(threads_that_apply(false).contains(std::this_thread::get_id()));
}

TEST(ExpensiveStage, ACheapStageIsAppliedByTheCallingThread) {
  EXPECT_EQ(threads_that_apply(true), (std::set{std::this_thread::get_id()}));
}

}  // namespace
}  // namespace millstream
