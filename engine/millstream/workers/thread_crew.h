#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "millstream/core/maker.h"

namespace millstream {

/// Threads of their own that call a function which may wait, or holds a lock of its
/// own. They begin with the first rows that are asked for.
class ThreadCrew final : public Maker {
 public:
  struct Function {
    /// Makes the rows of a part, noting in `row` which one it is at, or -n while it
    /// makes the first n at once. All that `part` points to, and `row`, are there as
    /// long as `owner` is.
    std::function<void(const Work& part, std::atomic<std::int64_t>& row,
                       const std::shared_ptr<const void>& owner)>
        make;
    /// Where the thread of that id is in the function, for people to read.
    std::function<std::string(std::uint64_t thread)> whereabouts;
  };

  /// A row that takes longer than `timeout` (0 for any time), or n rows made at once
  /// that take n times as long, are an error. A thread cannot be stopped, so the crew
  /// is closed from then on.
  ThreadCrew(Function function, int workers, std::chrono::milliseconds timeout);
  ~ThreadCrew() override;

  /// Who waits may leave while the function runs: it works on memory that lasts as long
  /// as it does, the batch's own (`Making::memory`) or a copy.
  void make(const Work& work) override;
  void close() noexcept override;
  int workers() const noexcept override { return workers_; }

 private:
  struct Rows;
  struct Part;
  struct Shared;

  void hire();  // with the mutex held
  void watch(const class Job& job);
  static void work(const std::shared_ptr<Shared>& shared);

  const std::shared_ptr<Shared> shared_;
  const int workers_;
  const std::chrono::milliseconds timeout_;
};

}  // namespace millstream
