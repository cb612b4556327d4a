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

/// A whole file mapped for reading. Its bytes may be touched only inside `guarded`
/// copies, since the file may shrink. Any number of threads may read at once.
class MappedFile {
 public:
  enum class Descriptor { kKept, kClosed };

  /// Throws `IoError`. A descriptor is `kKept` while the process uses fewer than half
  /// of those that it may have.
  explicit MappedFile(File file, Descriptor descriptor = Descriptor::kKept);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::filesystem::path& path() const noexcept { return path_; }
  std::int64_t size() const noexcept { return range_.end - range_.begin; }
  const MappedRange& range() const noexcept { return range_; }
  const std::byte* data() const noexcept { return range_.begin; }
  bool has_descriptor() const noexcept { return file_.has_value(); }

  /// Fills `to` from `offset`, by a positioned read where it has a descriptor. Throws
  /// `IoError`.
  void read(std::int64_t offset, std::span<std::byte> to) const;

  /// Asks the system to read these bytes ahead.
  void will_need(std::int64_t offset, std::int64_t bytes) const noexcept;

  /// Tells the system to read what is asked for and not what is around it.
  void in_any_order() const noexcept;

  /// Lets the system read it in its largest pages, which are cheaper to copy from at
  /// random; a row then brings all that is around it.
  void in_large_pages() const noexcept;

  /// Whether all of these bytes are known to be in memory; of a file of another user,
  /// whose pages the system does not speak of, that is never known.
  bool cached(std::int64_t offset, std::int64_t bytes = 1) const noexcept;

  /// Ends a `guarded` copy: up to which offset the bytes that it took are surely those
  /// of the file. Faults if the file has lost its last page. In the page where a file
  /// was cut the bytes beyond read as zeros without a fault, so of the last page only
  /// those before a byte that is not zero count; what was taken from behind it is
  /// followed by `check_size`.
  std::int64_t whole_to() const noexcept;

  /// Throws `IoError` if the file is smaller than it was, or if its descriptor is
  /// closed, it has another name by now, and nothing in it says that it is whole.
  void check_size() const;

  /// The `IoError` for a guarded copy that faulted at `address`.
  IoError lost(const std::byte* address) const;

 private:
  void advise(int advice) const noexcept;
  std::int64_t last_page() const noexcept;  // where it begins
  /// What its size is now, or -1 where that cannot be said.
  std::int64_t size_now() const noexcept;
  /// Finds the last byte that is not zero in the last page, once.
  void look_for_mark() const noexcept;
  /// Whether that byte was found and is still there.
  bool shows_mark() const noexcept;

  std::filesystem::path path_;
  MappedRange range_;
  std::optional<File> file_;
  FileIdentity identity_;                   // to find it by its name again
  bool is_told_;                            // which of its pages are in memory
  mutable std::atomic<std::int64_t> mark_;  // a byte of the last page
};

}  // namespace millstream
