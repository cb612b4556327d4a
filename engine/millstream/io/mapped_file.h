#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>

#include "millstream/io/file.h"
#include "millstream/io/guard.h"

namespace millstream {

/// A file for random reads. It is memory-mapped unless the process has too many maps.
/// Only `read` may touch the mapped bytes, because the file may shrink. Thread-safe.
class MappedFile {
 public:
  /// Maps the whole file, unless it is empty or 16,384 files are mapped already. Throws
  /// `IoError`.
  explicit MappedFile(File file);
  /// Uses a map that the caller made and keeps alive. `range` begins at `offset` of the
  /// file.
  MappedFile(std::filesystem::path path, MappedRange range, std::int64_t offset);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::filesystem::path& path() const noexcept { return path_; }
  /// The size of the file, or of the range that the caller mapped.
  std::int64_t size() const noexcept { return size_; }
  bool is_mapped() const noexcept { return range_.begin != nullptr; }
  const MappedRange& range() const noexcept { return range_; }
  const std::byte* data() const noexcept { return range_.begin; }
  bool has_descriptor() const noexcept { return file_.has_value(); }

  /// Runs `copy`, which reads the mapped range, as `guarded` does. Throws `IoError` if
  /// the file is now too small for the range. A renamed or deleted file stays readable.
  template <typename Copy>
  void read(Copy&& copy) const {
    check(guarded(range_, copy));
  }

  /// The same for a map of the whole file and a `copy` that reads only bytes before
  /// `end`. It also reads the last mapped byte, which faults if the file has lost a
  /// page. It is faster, because it asks for the file's size only if `end` is in the
  /// last page.
  template <typename Copy>
  void read(Copy&& copy, std::int64_t end) const {
    const std::byte* fault = guarded(range_, [&] {
      copy();
      std::atomic_thread_fence(std::memory_order_acquire);
      static_cast<void>(*static_cast<const volatile std::byte*>(range_.end - 1));
    });
    if (fault != nullptr || end > last_page_) check(fault);
  }

  /// Fills `to` with the bytes at `offset`. Uses `pread` if a descriptor is open.
  /// Throws `IoError`.
  void read(std::int64_t offset, std::span<std::byte> to) const;

  /// Opens the file again, e.g. for several reads of a file that is not mapped. Throws
  /// `IoError` unless it is the same file, unchanged.
  File open() const { return identity_.open(); }

  /// Advises the kernel to read these bytes ahead (MADV_WILLNEED).
  void will_need(std::int64_t offset, std::int64_t bytes) const noexcept;

  /// Advises the kernel not to read ahead by itself (MADV_RANDOM).
  void advise_random() const noexcept;

  /// Whether the page at `offset` is known to be in the page cache. Always false for
  /// files that the user neither owns nor may write, because the kernel hides their
  /// state.
  bool cached(std::int64_t offset) const noexcept;

 private:
  void check(const std::byte* fault) const;

  std::filesystem::path path_;
  std::int64_t size_;
  MappedRange range_;
  std::int64_t last_page_ = 0;    // offset of the last page
  std::int64_t offset_ = 0;       // where the range begins in the file
  std::optional<File> file_;      // only while few descriptors are in use
  FileIdentity identity_;         // finds the file without a descriptor
  bool owned_ = false;            // whether to unmap the range
  bool may_query_cache_ = false;  // `mincore` gives correct results
};

}  // namespace millstream
