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

/// A file to be read at random, mapped unless the process has too many maps. The bytes
/// of a map may be touched only by `read`, because the file may shrink. Any number of
/// threads may read at once.
class MappedFile {
 public:
  /// Maps the whole file, unless 16,384 others are mapped or it is empty. Throws
  /// `IoError`.
  explicit MappedFile(File file);
  /// A map that somebody else made and keeps: `range` begins at `offset` of the file.
  MappedFile(std::filesystem::path path, MappedRange range, std::int64_t offset);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::filesystem::path& path() const noexcept { return path_; }
  /// Of the file, or of what somebody else mapped of it.
  std::int64_t size() const noexcept { return size_; }
  bool is_mapped() const noexcept { return range_.begin != nullptr; }
  const MappedRange& range() const noexcept { return range_; }
  const std::byte* data() const noexcept { return range_.begin; }
  bool has_descriptor() const noexcept { return file_.has_value(); }

  /// Runs `copy`, which reads the range, as `guarded` does. Throws `IoError` if the
  /// file is now too small for the range; a file that was renamed or deleted stays
  /// readable.
  template <typename Copy>
  void read(Copy&& copy) const {
    check(guarded(range_, copy));
  }

  /// The same for a map of the whole file, of which `copy` reads nothing from `end` on.
  /// The last byte is touched too, which faults unless all pages are still there; so
  /// the size is looked up only after rows of the last page were read.
  template <typename Copy>
  void read(Copy&& copy, std::int64_t end) const {
    const std::byte* fault = guarded(range_, [&] {
      copy();
      std::atomic_thread_fence(std::memory_order_acquire);
      static_cast<void>(*static_cast<const volatile std::byte*>(range_.end - 1));
    });
    if (fault != nullptr || end > last_page_) check(fault);
  }

  /// Fills `to` from `offset`, by a positioned read where it has a descriptor. Throws
  /// `IoError`.
  void read(std::int64_t offset, std::span<std::byte> to) const;

  /// Opens the file again, for several reads of one that is not mapped. Throws
  /// `IoError` unless it is the same file, unchanged.
  File open() const { return identity_.open(); }

  /// Asks the system to read these bytes ahead.
  void will_need(std::int64_t offset, std::int64_t bytes) const noexcept;

  /// Advises the system not to read ahead.
  void advise_random() const noexcept;

  /// Whether the page at `offset` is known to be in memory. The system does not say so
  /// for files of other users.
  bool cached(std::int64_t offset) const noexcept;

 private:
  void check(const std::byte* fault) const;

  std::filesystem::path path_;
  std::int64_t size_;
  MappedRange range_;
  std::int64_t last_page_ = 0;    // where it begins
  std::int64_t offset_ = 0;       // of the range in the file
  std::optional<File> file_;      // of the first files only
  FileIdentity identity_;         // to find it where there is no descriptor
  bool owned_ = false;            // the map
  bool may_query_cache_ = false;  // the system says which pages are in memory
};

}  // namespace millstream
