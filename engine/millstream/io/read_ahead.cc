#include "millstream/io/read_ahead.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace millstream {
namespace {

/// Times that nothing is asked for after all was found in memory.
constexpr int kRests = 15;
/// What comes around a row. Disks read as much at once as fast as they can.
constexpr std::int64_t kPiece = std::int64_t{1} << 21;
/// Bytes of pieces for each byte of rows: then all is in memory after a third or so of
/// an epoch, and one row in six came alone.
constexpr std::int64_t kPieces = 3;
/// Files have to fit into memory this many times.
constexpr std::int64_t kRoom = 2;

std::int64_t limit_in(const char* path) {
  std::int64_t bytes = 0;
  return std::ifstream(path) >> bytes ? bytes
                                      : std::numeric_limits<std::int64_t>::max();
}

}  // namespace

std::int64_t memory_for_files() noexcept {
  try {
    std::ifstream in("/proc/meminfo");
    std::string word;
    while (in >> word && word != "MemAvailable:") {
    }
    std::int64_t kibibytes = 0;
    if (!(in >> kibibytes)) return 0;
    return std::min({kibibytes << 10, limit_in("/sys/fs/cgroup/memory.max"),
                     limit_in("/sys/fs/cgroup/memory/memory.limit_in_bytes")});
  } catch (...) {
    return 0;
  }
}

bool ReadAhead::rests() noexcept {
  if (rests_.load(std::memory_order_relaxed) <= 0) return false;
  rests_.fetch_sub(1, std::memory_order_relaxed);
  return true;
}

void ReadAhead::rest() noexcept { rests_.store(kRests, std::memory_order_relaxed); }

bool ReadAhead::has_time() const noexcept {
  return (last_.file == nullptr || last_.file->cached(last_.offset, last_.bytes)) &&
         bytes_ <= memory_for_files() / kRoom;
}

void ReadAhead::ask(std::span<const FileRange> ranges) noexcept {
  // Of two threads that ask at once one asks for rows alone.
  const std::unique_lock lock(mutex_, std::try_to_lock);
  std::int64_t pieces = 0;
  if (lock.owns_lock()) {
    for (const FileRange& range : ranges) due_ += kPieces * range.bytes;
    if (due_ >= kPiece && has_time()) pieces = due_ / kPiece;
    due_ -= pieces * kPiece;
    due_ = std::min(due_, kPiece);
  }
  std::int64_t end = 0;  // of the last piece, in its file
  const MappedFile* in = nullptr;
  for (const FileRange& range : ranges) {
    if (range.file->cached(range.offset, range.bytes)) continue;
    if (pieces > 0 && (range.file != in || range.offset >= end)) {
      const std::int64_t begin = range.offset / kPiece * kPiece;
      range.file->will_need(begin, kPiece);
      --pieces;
      end = begin + kPiece;
      in = range.file;
    }
    range.file->will_need(range.offset, range.bytes);
    if (lock.owns_lock()) last_ = range;
  }
}

}  // namespace millstream
