#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>

#include "millstream/workers/message.h"

namespace millstream {

/// The numbers under which a worker process finds what it was given.
inline constexpr int kWorkerSocket = 3;
inline constexpr int kWorkerMemory = 4;
inline constexpr int kWorkerWords = 5;  // where it writes what it does, when asked

/// What a crew sends a worker that takes too long, to hear where it is.
int whereabouts_signal() noexcept;

/// The other side of a crew, in a process of its own. Ends the process as soon as the
/// parent has ended, however it did. Belongs to one thread.
class Worker {
 public:
  /// Waits for what the crew was given.
  explicit Worker(std::int64_t parent);

  const std::string& setup() const noexcept { return setup_; }

  /// Says that it can take tasks.
  void ready();
  /// Waits for the next task; false when there will be none.
  bool next();
  const Task& task() const noexcept { return task_; }
  std::byte* data(const Task::Rows& rows) { return blocks_.at(rows.place); }

  /// Which row it is at, or -n while it makes the first n at once; the crew reads it
  /// when something goes wrong.
  std::atomic<std::int64_t>& row() noexcept { return *row_; }

  /// Answers to the task.
  void done(std::string_view beside);
  void failed(const Failure& failure);

 private:
  MappedBlocks blocks_;
  MappedBlocks board_;  // where the row stands, mapped for good
  std::string setup_;
  Task task_;
  std::string body_;
  std::atomic<std::int64_t>* row_ = nullptr;
};

}  // namespace millstream
