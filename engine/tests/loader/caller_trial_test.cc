#include "millstream/loader/caller_trial.h"

#include <gtest/gtest.h>

#include <vector>

namespace millstream {
namespace {

using std::chrono::milliseconds;

constexpr int kAhead = 2;
constexpr int kWindow = kAhead + 1 + CallerTrial::kMeasured;
constexpr int kTrial = CallerTrial::kWindows * kWindow;

/// A loop whose batches take another time with the caller than with the worker.
class Loop {
 public:
  Loop(milliseconds worker, milliseconds caller) : worker_(worker), caller_(caller) {}

  /// Asks for `batches` batches. Returns how many of them the caller made.
  int run(int batches) {
    int made = 0;
    for (int i = 0; i < batches; ++i) {
      const bool calls = trial_.caller_makes(now_);
      now_ += calls ? caller_ : worker_;
      made += calls ? 1 : 0;
    }
    return made;
  }
  void pause(milliseconds time) { now_ += time; }

 private:
  const milliseconds worker_;
  const milliseconds caller_;
  CallerTrial trial_{kAhead};
  CallerTrial::Clock::time_point now_;
};

TEST(CallerTrial, TriesBothInTurn) {
  Loop loop(milliseconds(2), milliseconds(1));
  EXPECT_EQ(loop.run(kWindow), 0);
  EXPECT_EQ(loop.run(kWindow), kWindow);
  EXPECT_EQ(loop.run(kWindow), 0);
  EXPECT_EQ(loop.run(kWindow), kWindow);
}

TEST(CallerTrial, KeepsTheFasterOneUntilTheNextTrial) {
  for (const bool caller : {false, true}) {
    Loop loop(milliseconds(2), milliseconds(caller ? 1 : 3));
    loop.run(kTrial);
    EXPECT_EQ(loop.run(CallerTrial::kKept), caller ? CallerTrial::kKept : 0);
    EXPECT_EQ(loop.run(kWindow), 0) << "a new trial begins with the worker";
    EXPECT_EQ(loop.run(kWindow), kWindow);
  }
}

TEST(CallerTrial, TheWorkerWinsTies) {
  Loop loop(milliseconds(10), milliseconds(10));
  loop.run(kTrial);
  EXPECT_EQ(loop.run(100), 0);
}

TEST(CallerTrial, OnePauseDoesNotChangeTheResult) {
  Loop loop(milliseconds(2), milliseconds(1));
  loop.run(kWindow + kAhead + 5);
  loop.pause(milliseconds(10'000));  // in a window of the caller
  loop.run(kTrial - kWindow - kAhead - 5);
  EXPECT_EQ(loop.run(100), 100);
}

TEST(CallerTrial, SlowBatchesAreMadeByTheWorkerWithoutATrial) {
  Loop loop(CallerTrial::kSlow + milliseconds(1), milliseconds(1));
  EXPECT_EQ(loop.run(kWindow + 500), 0);
}

}  // namespace
}  // namespace millstream
