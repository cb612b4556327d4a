#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "millstream/core/maker.h"
#include "millstream/ipc/child.h"
#include "millstream/ipc/process_crew.h"
#include "millstream/parallel/job.h"

namespace millstream {

/// Rows for one worker.
struct Part {
  std::shared_ptr<Job> job;
  std::int64_t begin = 0;  // in the job
  Task task;
  Beside* beside = nullptr;
  std::int64_t first = 0;  // what `beside` counts the first row as

  std::int64_t rows() const { return static_cast<std::int64_t>(task.indices.size()); }
};

/// The thread that looks after a crew's processes: starts them, hands out parts, takes
/// answers, and notices those that died or stall. Nobody else touches them.
class Desk {
 public:
  Desk(const Launch& launch, ProcessCrew::Options options,
       std::shared_ptr<SharedMemory> memory);
  /// Ends the processes; those who wait are told that it is over.
  ~Desk();
  Desk(const Desk&) = delete;
  Desk& operator=(const Desk&) = delete;

  /// The same, while others still hold the desk. One thread may call it.
  void end() noexcept;
  /// Throws `Closed` after the end.
  void add(std::vector<std::shared_ptr<Part>> parts);
  /// Something may have been cancelled.
  void nudge() noexcept;
  std::int64_t grain(std::int64_t rows) const noexcept {
    return pace_.grain(rows, options_.workers);
  }
  std::vector<std::int64_t> pids() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Seat {
    std::unique_ptr<Child> child;
    std::atomic<std::int64_t>* row = nullptr;  // in shared memory
    std::deque<std::shared_ptr<Part>> given;   // the first is being made
    bool ready = false;
    std::int64_t seen = 0;                       // the row it was at
    Clock::time_point since;                     // when it was first seen there
    Clock::time_point begun;                     // when the first part was
    std::optional<Clock::time_point> abandoned;  // since when nobody wants its parts
    std::exception_ptr unfit;                    // why it could not be set up
  };

  void run(const std::stop_token& stop);
  void start_workers();
  void hand_out();
  void give(Seat& seat);
  void drop_cancelled();
  /// Whoever is at rows that nobody wants may be at them for ever.
  void end_abandoned();
  bool wait(const std::stop_token& stop);
  void take_answers(Seat& seat);
  void answer(Seat& seat, Kind kind, const std::string& body);
  void bury(Seat& seat, const std::string& epitaph);
  void look_for_stalls();
  void end_all() noexcept;
  void fail_all(const std::exception_ptr& error);
  bool at_work() const;

  const Launch launch_;
  const ProcessCrew::Options options_;
  const std::shared_ptr<SharedMemory> memory_;
  const Block board_;  // a cell a worker
  const int wake_;     // an eventfd
  Pace pace_;
  int restarts_;
  std::vector<Seat> seats_;  // the thread's own, but for who is in them
  mutable std::mutex mutex_;
  std::deque<std::shared_ptr<Part>> queue_;
  std::vector<std::int64_t> pids_;
  bool over_ = false;
  std::jthread thread_;  // last: it uses the members above
};

}  // namespace millstream
