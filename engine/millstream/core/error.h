#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

namespace millstream {

/// The name of a file in an error: its path and, in an archive, the member.
struct FileName {
  FileName() = default;
  FileName(std::string file_path, std::string archive_member = {})
      : path(std::move(file_path)), member(std::move(archive_member)) {}
  FileName(const char* file_path) : path(file_path) {}

  /// The name as text, e.g. "data.npz[image]", or the path alone.
  std::string str() const;

  std::string path;
  std::string member;
};

/// The facts of an error. A member that is unknown or does not apply is empty.
struct ErrorFields {
  FileName file = {};
  std::optional<std::int64_t> offset = {};   // of a byte in the file
  std::optional<std::int64_t> line = {};     // of a table, from 1
  std::optional<std::int64_t> column = {};   // of that line, from 1
  std::optional<std::int64_t> sample = {};   // index in the file, else in the source
  std::optional<std::int64_t> process = {};  // process id of the worker
  std::string field = {};
  std::string expected = {};
  std::string found = {};
  /// Further text for the message. If `sample` is set and `expected` and `found` are
  /// not, it continues the sentence that begins with "sample 3 ".
  std::string text = {};
};

enum class ErrorKind : std::uint8_t {
  kOther,
  kArgument,
  kData,
  kIo,
  kMemory,
  kThread,
  kCancelled,
  kClosed,
  kFunction,
  kWorkerDied,
  kWorkerStalled,
};

/// The name of a kind, e.g. "data" or "worker_died".
std::string_view name(ErrorKind kind) noexcept;

/// Composes the message of an error, e.g. "x.csv: line 3, column 1 ('a'): expected a
/// number, found 'b'". Every message of the engine is composed here.
std::string composed(ErrorKind kind, const ErrorFields& fields);

/// Any failure that the engine reports. The subclasses say what caused it.
class Error : public std::exception {
 public:
  explicit Error(ErrorFields fields, ErrorKind kind = ErrorKind::kOther);
  explicit Error(std::string text, ErrorKind kind = ErrorKind::kOther);

  ErrorKind kind() const noexcept { return kind_; }
  const ErrorFields& fields() const noexcept { return fields_; }
  const char* what() const noexcept override { return message_.c_str(); }

  /// Sets the fields that are still empty. Only the thread that threw the error may
  /// call it, before another thread can see the error.
  void add(const ErrorFields& known);

 private:
  ErrorKind kind_;
  ErrorFields fields_;
  std::string message_;
};

/// Runs `body` and returns its result. If it throws an `Error`, adds the fields that
/// `known` returns and rethrows.
template <typename Known, typename Body>
auto adding(Known&& known, Body&& body) {
  try {
    return body();
  } catch (Error& error) {
    error.add(known());
    throw;
  }
}

/// The caller passed an invalid argument. Becomes `ValueError` in Python.
struct ArgumentError : Error {
  explicit ArgumentError(ErrorFields fields)
      : Error(std::move(fields), ErrorKind::kArgument) {}
  explicit ArgumentError(std::string text)
      : Error(std::move(text), ErrorKind::kArgument) {}
};

/// The stored bytes do not match their format. Becomes `DataError`.
struct DataError : Error {
  explicit DataError(ErrorFields fields) : Error(std::move(fields), ErrorKind::kData) {}
  explicit DataError(std::string text) : Error(std::move(text), ErrorKind::kData) {}
};

/// The operating system could not read or write. Becomes `OSError` with errno and path.
class IoError : public Error {
 public:
  IoError(int code, ErrorFields fields)
      : Error(std::move(fields), ErrorKind::kIo), code_(code) {}

  int code() const noexcept { return code_; }

 private:
  int code_;
};

/// The operating system refused to allocate memory. Becomes `MemoryError`.
class OutOfMemory : public Error {
 public:
  explicit OutOfMemory(std::string text) : Error(std::move(text), ErrorKind::kMemory) {}
  /// The message for an allocation whose purpose is unknown.
  static constexpr const char* kUnnamed =
      "the engine could not allocate memory. Free memory, raise the memory limit "
      "(ulimit -v, or the container's limit), or use a smaller batch_size= and "
      "prefetch=.";
};

/// The operating system refused to start a thread. Becomes `RuntimeError`.
class ThreadError : public Error {
 public:
  /// `what` describes the thread; `reason` is the message of the operating system.
  ThreadError(const std::string& what, const std::string& reason)
      : Error("cannot start " + what + ": " + reason + ". " + kRemedy,
              ErrorKind::kThread) {}

  static constexpr const char* kRemedy =
      "The limit on processes and threads (ulimit -u, or the container's limit) or the "
      "memory is exhausted. Raise the limit, or use fewer workers= and threads=.";
};

/// The caller cancelled the call. Becomes `KeyboardInterrupt` if a signal caused it.
struct Cancelled : Error {
  explicit Cancelled(std::string text, ErrorKind kind = ErrorKind::kCancelled)
      : Error(std::move(text), kind) {}
};

/// The workers or the loader are already closed. Becomes `WorkerError`.
struct Closed : Cancelled {
  explicit Closed(std::string text) : Cancelled(std::move(text), ErrorKind::kClosed) {}
};

/// A user's function failed at a sample. It fails again every time, unless the error is
/// transient. Carries the user's exception: as bytes from a worker process, or as an
/// object of this process.
class FunctionError : public Error {
 public:
  FunctionError(std::string message, std::int64_t sample, std::string bytes,
                std::shared_ptr<const void> object, bool transient = false)
      : Error(std::move(message), ErrorKind::kFunction),
        sample_(sample),
        bytes_(std::move(bytes)),
        object_(std::move(object)),
        transient_(transient) {}

  /// -1 if the function failed before the first sample.
  std::int64_t sample() const noexcept { return sample_; }
  const std::string& bytes() const noexcept { return bytes_; }
  const std::shared_ptr<const void>& object() const noexcept { return object_; }
  /// Whether another attempt may succeed, e.g. after EIO or an interrupt.
  bool transient() const noexcept { return transient_; }

 private:
  std::int64_t sample_;
  std::string bytes_;
  std::shared_ptr<const void> object_;
  bool transient_;
};

/// A worker exited before it had made its samples. Another attempt may succeed. Becomes
/// `WorkerError`.
struct WorkerDied : Error {
  explicit WorkerDied(ErrorFields fields)
      : Error(std::move(fields), ErrorKind::kWorkerDied) {}
  explicit WorkerDied(std::string text)
      : Error(std::move(text), ErrorKind::kWorkerDied) {}
};

/// A sample exceeded the time limit. Another attempt may succeed. Becomes
/// `WorkerTimeout`.
struct WorkerStalled : Error {
  explicit WorkerStalled(ErrorFields fields)
      : Error(std::move(fields), ErrorKind::kWorkerStalled) {}
  explicit WorkerStalled(std::string text)
      : Error(std::move(text), ErrorKind::kWorkerStalled) {}
};

/// Joins its arguments into one message, e.g. `text(path, ": truncated")`.
template <typename... Values>
std::string text(const Values&... values) {
  std::ostringstream out;
  (out << ... << values);
  return out.str();
}

}  // namespace millstream
