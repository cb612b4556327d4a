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
    /// makes the first n at once.
    std::function<void(const Work& part, std::atomic<std::int64_t>& row)> make;
    /// Where the thread of that id is in the function, for people to read.
    std::function<std::string(std::uint64_t thread)> whereabouts;
  };

  /// A row that takes longer than `timeout` (0 for any time), or n rows made at once
  /// that take n times as long, are an error; their thread, which cannot be stopped, is
  /// replaced.
  ThreadCrew(Function function, int workers, std::chrono::milliseconds timeout);
  ~ThreadCrew() override;

  void make(const Work& work) override;
  void close() noexcept override;
  int workers() const noexcept override { return workers_; }
  /// Threads that have not ended, but for those that were given up.
  int running() const;

 private:
  struct Part;
  struct Seat;
  struct Shared;

  void hire();  // with the mutex held, as the next
  void replace_lost();
  void watch(const std::shared_ptr<class Job>& job);
  static void work(const std::shared_ptr<Shared>& shared,
                   const std::shared_ptr<Seat>& seat);

  const std::shared_ptr<Shared> shared_;
  const int workers_;
  const std::chrono::milliseconds timeout_;
};

}  // namespace millstream
