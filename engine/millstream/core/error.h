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

/// A file as errors name it: its path and, in an archive, the member.
struct FileName {
  FileName() = default;
  FileName(std::string file_path, std::string archive_member = {})
      : path(std::move(file_path)), member(std::move(archive_member)) {}
  FileName(const char* file_path) : path(file_path) {}

  /// "data.npz[image]", or the path alone.
  std::string str() const;

  std::string path;
  std::string member;
};

/// What an error is about. What is unknown or does not apply is empty.
struct ErrorFields {
  FileName file = {};
  std::optional<std::int64_t> offset = {};   // of a byte in the file
  std::optional<std::int64_t> line = {};     // of a table, from 1
  std::optional<std::int64_t> column = {};   // of that line, from 1
  std::optional<std::int64_t> sample = {};   // in the file, or else in its source
  std::optional<std::int64_t> process = {};  // the worker process
  std::string field = {};
  std::string expected = {};
  std::string found = {};
  /// Where `expected` and `found` do not say it. After a sample it goes on the sentence
  /// that begins with "sample 3".
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

/// "data", "worker_died" and so on.
std::string_view name(ErrorKind kind) noexcept;

/// The message of an error, such as "x.csv: line 3, column 1 ('a'): expected a number,
/// found 'b'". All messages are composed here.
std::string composed(ErrorKind kind, const ErrorFields& fields);

/// Any failure that the engine reports. Subclasses say whose fault it was.
class Error : public std::exception {
 public:
  explicit Error(ErrorFields fields, ErrorKind kind = ErrorKind::kOther);
  explicit Error(std::string text, ErrorKind kind = ErrorKind::kOther);

  ErrorKind kind() const noexcept { return kind_; }
  const ErrorFields& fields() const noexcept { return fields_; }
  const char* what() const noexcept override { return message_.c_str(); }

  /// Fills in what the error does not say. Only for the thread that threw it, before
  /// another thread can see it.
  void add(const ErrorFields& known);

 private:
  ErrorKind kind_;
  ErrorFields fields_;
  std::string message_;
};

/// Runs `body`; the fields that `known` returns are added to an error that it throws.
template <typename Known, typename Body>
auto adding(Known&& known, Body&& body) {
  try {
    return body();
  } catch (Error& error) {
    error.add(known());
    throw;
  }
}

/// The caller asked for something impossible. Becomes `ValueError` in Python.
struct ArgumentError : Error {
  explicit ArgumentError(ErrorFields fields)
      : Error(std::move(fields), ErrorKind::kArgument) {}
  explicit ArgumentError(std::string text)
      : Error(std::move(text), ErrorKind::kArgument) {}
};

/// The stored bytes are not what their format promises. Becomes `DataError`.
struct DataError : Error {
  explicit DataError(ErrorFields fields) : Error(std::move(fields), ErrorKind::kData) {}
  explicit DataError(std::string text) : Error(std::move(text), ErrorKind::kData) {}
};

/// The system could not read or write. Becomes `OSError` with errno and file.
class IoError : public Error {
 public:
  IoError(int code, ErrorFields fields)
      : Error(std::move(fields), ErrorKind::kIo), code_(code) {}

  int code() const noexcept { return code_; }

 private:
  int code_;
};

/// The system refused memory. Becomes `MemoryError`.
class OutOfMemory : public Error {
 public:
  explicit OutOfMemory(std::string text) : Error(std::move(text), ErrorKind::kMemory) {}
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
      : Error("cannot start " + what + ": " + reason + ". " + kRemedy,
              ErrorKind::kThread) {}

  static constexpr const char* kRemedy =
      "The limit of processes and threads (ulimit -u, or that of the container) or the "
      "memory is used up: raise it, or use fewer workers= and threads=";
};

/// The caller asked to stop. Becomes `KeyboardInterrupt` where a signal did so.
struct Cancelled : Error {
  explicit Cancelled(std::string text, ErrorKind kind = ErrorKind::kCancelled)
      : Error(std::move(text), kind) {}
};

/// The workers or the loader were closed already. Becomes `WorkerError`.
struct Closed : Cancelled {
  explicit Closed(std::string text) : Cancelled(std::move(text), ErrorKind::kClosed) {}
};

/// A function of the user's failed at a sample: the same every time, unless it is
/// transient. Carries what it threw for those who can read it: bytes from another
/// process, or an object.
class FunctionError : public Error {
 public:
  FunctionError(std::string message, std::int64_t sample, std::string bytes,
                std::shared_ptr<const void> object, bool transient = false)
      : Error(std::move(message), ErrorKind::kFunction),
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
  explicit WorkerDied(ErrorFields fields)
      : Error(std::move(fields), ErrorKind::kWorkerDied) {}
  explicit WorkerDied(std::string text)
      : Error(std::move(text), ErrorKind::kWorkerDied) {}
};

/// A sample took longer than it may; another try may succeed. Becomes `WorkerTimeout`.
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
