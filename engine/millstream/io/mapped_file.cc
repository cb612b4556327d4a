#include "millstream/io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

namespace millstream {
namespace {

const std::int64_t kPage = ::sysconf(_SC_PAGESIZE);

/// Whether `mincore` answers for a file; for others' files it says that all is there.
bool is_told_of(const File& file) noexcept {
  struct stat status {};
  return (::fstat(file.descriptor(), &status) == 0 && status.st_uid == ::geteuid()) ||
         ::faccessat(AT_FDCWD, file.path().c_str(), W_OK, AT_EACCESS) == 0;
}

/// Whether a process can do without this descriptor: the lowest number that is free is
/// given, so one in the upper half says that half of them are in use.
bool is_spare(int descriptor) noexcept {
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  return static_cast<rlim_t>(descriptor) < limit.rlim_cur / 2;
}

}  // namespace

MappedFile::MappedFile(File file, Descriptor descriptor)
    : path_(file.path()),
      file_(std::move(file)),
      is_told_(is_told_of(*file_)),
      mark_(file_->size() - 1) {
  install_guard();
  if (file_->size() > 0) {
    const auto size = static_cast<std::size_t>(file_->size());
    void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file_->descriptor(), 0);
    if (data == MAP_FAILED) throw io_error(errno, path_, "cannot be mapped");
    range_.begin = static_cast<const std::byte*>(data);
    range_.end = range_.begin + size;
  }
  if (descriptor == Descriptor::kClosed || !is_spare(file_->descriptor())) {
    identity_ = FileIdentity(path_);
    file_.reset();
  }
}

MappedFile::~MappedFile() {
  if (range_.begin == nullptr) return;
  ::munmap(const_cast<std::byte*>(range_.begin), static_cast<std::size_t>(size()));
}

void MappedFile::read(std::int64_t offset, std::span<std::byte> to) const {
  if (file_) return file_->read(offset, to);
  if (to.empty()) return;
  if (static_cast<std::int64_t>(to.size()) > size() - offset) throw lost(range_.end);
  const std::byte* fault = guarded(
      {&range_, 1}, [&] { std::memcpy(to.data(), range_.begin + offset, to.size()); });
  if (fault != nullptr) throw lost(fault);
  check_size();
}

void MappedFile::will_need(std::int64_t offset, std::int64_t bytes) const noexcept {
  const std::int64_t begin = offset / kPage * kPage;
  const std::int64_t end = std::min(offset + bytes, size());
  if (begin >= end) return;
  ::madvise(const_cast<std::byte*>(range_.begin) + begin,
            static_cast<std::size_t>(end - begin), MADV_WILLNEED);
}

void MappedFile::in_any_order() const noexcept { advise(MADV_RANDOM); }

void MappedFile::in_large_pages() const noexcept { advise(MADV_HUGEPAGE); }

void MappedFile::advise(int advice) const noexcept {
  if (range_.begin == nullptr) return;
  ::madvise(const_cast<std::byte*>(range_.begin), static_cast<std::size_t>(size()),
            advice);
}

bool MappedFile::cached(std::int64_t offset, std::int64_t bytes) const noexcept {
  // A read that does not wait would tell of others' files too, but begins to read, and
  // says yes where the disk is faster than the thread is woken.
  if (!is_told_) return false;
  std::array<unsigned char, 64> pages;
  const std::int64_t end = std::min(offset + bytes, size());
  for (std::int64_t at = offset / kPage * kPage; at < end;) {
    const std::int64_t count =
        std::min<std::int64_t>((end - at + kPage - 1) / kPage, pages.size());
    pages.fill(1);  // what `mincore` cannot tell of is not asked for either
    ::mincore(const_cast<std::byte*>(range_.begin) + at,
              static_cast<std::size_t>(count * kPage), pages.data());
    const auto missing = [](unsigned char page) { return (page & 1) == 0; };
    if (std::any_of(pages.begin(), pages.begin() + count, missing)) return false;
    at += count * kPage;
  }
  return true;
}

std::int64_t MappedFile::size_now() const noexcept {
  if (!file_) return identity_.size_now();
  struct stat status {};
  return ::fstat(file_->descriptor(), &status) == 0 ? status.st_size : -1;
}

std::int64_t MappedFile::last_page() const noexcept {
  return std::max<std::int64_t>(size() - 1, 0) / kPage * kPage;
}

std::int64_t MappedFile::whole_to() const noexcept {
  if (range_.begin == nullptr) return 0;
  std::atomic_thread_fence(std::memory_order_acquire);  // the copy comes first
  const std::int64_t mark = mark_.load(std::memory_order_relaxed);
  const std::byte found = *static_cast<const volatile std::byte*>(range_.begin + mark);
  return found == std::byte{0} ? last_page() : mark + 1;
}

void MappedFile::look_for_mark() const noexcept {
  if (mark_.load(std::memory_order_relaxed) != size() - 1) return;
  std::int64_t mark = size() - 1;
  const std::byte* lost = guarded({&range_, 1}, [&] {
    while (mark > last_page() && range_.begin[mark] == std::byte{0}) --mark;
  });
  if (lost == nullptr) mark_.store(mark, std::memory_order_relaxed);
}

bool MappedFile::shows_mark() const noexcept {
  bool shows = false;
  guarded({&range_, 1}, [&] { shows = whole_to() > last_page(); });
  return shows;
}

void MappedFile::check_size() const {
  if (size() == 0) return;
  const std::int64_t there = size_now();
  if (there >= 0 && there < size()) throw lost(range_.begin + there);
  if (there >= 0) {
    look_for_mark();
  } else if (!shows_mark()) {
    throw lost(range_.begin + last_page());
  }
}

IoError MappedFile::lost(const std::byte* address) const {
  const std::int64_t there = size_now();
  const std::string now =
      there < 0 ? "is no longer there under that name" : text("has ", there, " now");
  return {EIO, path_,
          text(path_.string(), ": offset ", address - range_.begin,
               " can no longer be read: the file had ", size(),
               " bytes when it was opened and ", now)};
}

}  // namespace millstream
