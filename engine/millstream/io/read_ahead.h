#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>

#include "millstream/io/mapped_file.h"

namespace millstream {

/// Some bytes of a mapped file.
struct FileRange {
  const MappedFile* file = nullptr;
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
};

/// Bytes of files that the system can hold in memory, within what the control group of
/// this process may use; 0 where that is not known.
std::int64_t memory_for_files() noexcept;

/// Asks the system for what will soon be read of files, at random and in the end whole.
/// A row that comes alone costs the processor as much as a hundred that come together;
/// so where the files fit into memory, and as long as the disk keeps up, a piece around
/// some of the missing rows is asked for too. Any number of threads may ask at once.
class ReadAhead {
 public:
  /// For files of that many bytes together, which outlive it.
  explicit ReadAhead(std::int64_t bytes) noexcept : bytes_(bytes) {}

  /// Whether to ask for nothing this time, since of late all was in memory.
  bool rests() noexcept;
  /// Says that all is in memory.
  void rest() noexcept;

  /// Asks for those of the ranges that are not in memory. They come in the order of
  /// their files.
  void ask(std::span<const FileRange> ranges) noexcept;

 private:
  /// Whether pieces may come too: there is room, and what was asked for last is there.
  bool has_time() const noexcept;

  const std::int64_t bytes_;
  std::atomic<int> rests_ = 0;
  std::mutex mutex_;      // guards what follows
  FileRange last_;        // of those that were asked for
  std::int64_t due_ = 0;  // bytes of pieces
};

}  // namespace millstream
