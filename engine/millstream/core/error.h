#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace millstream {

/// Any failure that the engine reports. Subclasses say whose fault it was.
class Error : public std::runtime_error {
 public:
  /// A zero in the message, where `what` would end, is written as \x00.
  explicit Error(const std::string& message)
      : std::runtime_error(without_zeros(message)) {}

 private:
  static std::string without_zeros(const std::string& message) {
    std::string whole;
    for (const char c : message) {
      if (c == '\0') whole += "\\x00";
      if (c != '\0') whole += c;
    }
    return whole;
  }
};

/// The caller asked for something impossible. Becomes `ValueError` in Python.
struct ArgumentError : Error {
  using Error::Error;
};

/// The stored bytes are not what their format promises. Becomes `DataError`.
struct DataError : Error {
  using Error::Error;
};

/// The system could not read or write. Becomes `OSError` with errno and file.
class IoError : public Error {
 public:
  IoError(int code, std::filesystem::path path, const std::string& message)
      : Error(message), code_(code), path_(std::move(path)) {}

  int code() const noexcept { return code_; }
  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  int code_;
  std::filesystem::path path_;
};

/// The system refused memory. Becomes `MemoryError`.
class OutOfMemory : public Error {
 public:
  using Error::Error;
  /// Where nobody knows what it was for.
  static constexpr const char* kUnnamed =
      "the engine could not allocate memory: free some, raise the limit (ulimit -v, or "
      "that of the container), or use a smaller batch_size= and prefetch=";
};

/// The system refused to start a thread. Becomes `RuntimeError`.
class ThreadError : public Error {
 public:
  /// `what` is the thread, `reason` what the system says.
  ThreadError(const std::string& what, const std::string& reason)
      : Error("cannot start " + what + ": " + reason + ". " + kRemedy) {}

  static constexpr const char* kRemedy =
      "The limit of processes and threads (ulimit -u, or that of the container) or the "
      "memory is used up: raise it, or use fewer workers= and threads=";
};

/// The caller asked to stop. Becomes `KeyboardInterrupt` where a signal did so.
struct Cancelled : Error {
  using Error::Error;
};

/// The workers or the loader were closed already. Becomes `WorkerError`.
struct Closed : Cancelled {
  using Cancelled::Cancelled;
};

/// A function of the user's failed at a sample: the same every time, unless it is
/// transient. Carries what it threw for those who can read it: bytes from another
/// process, or an object.
class FunctionError : public Error {
 public:
  FunctionError(const std::string& message, std::int64_t sample, std::string bytes,
                std::shared_ptr<const void> object, bool transient = false)
      : Error(message),
        sample_(sample),
        bytes_(std::move(bytes)),
        object_(std::move(object)),
        transient_(transient) {}

  /// -1 if the error came before the first sample.
  std::int64_t sample() const noexcept { return sample_; }
  const std::string& bytes() const noexcept { return bytes_; }
  const std::shared_ptr<const void>& object() const noexcept { return object_; }
  /// Whether another try may succeed, as after EIO or an interrupt.
  bool transient() const noexcept { return transient_; }

 private:
  std::int64_t sample_;
  std::string bytes_;
  std::shared_ptr<const void> object_;
  bool transient_;
};

/// A worker ended before its samples were made; another try may succeed. Becomes
/// `WorkerError`.
struct WorkerDied : Error {
  using Error::Error;
};

/// A sample took longer than it may; another try may succeed. Becomes `WorkerTimeout`.
struct WorkerStalled : Error {
  using Error::Error;
};

/// Joins its arguments into one message, e.g. `text(path, ": truncated")`.
template <typename... Values>
std::string text(const Values&... values) {
  std::ostringstream out;
  (out << ... << values);
  return out.str();
}

}  // namespace millstream
