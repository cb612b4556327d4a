#pragma once

#include <filesystem>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace millstream {

/// Any failure that the engine reports. Subclasses say whose fault it was.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The caller asked for something impossible. Becomes `ValueError` in Python.
class ArgumentError : public Error {
 public:
  using Error::Error;
};

/// The stored bytes are not what their format promises. Becomes `DataError`.
class DataError : public Error {
 public:
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

/// The caller asked to stop. Becomes `KeyboardInterrupt` where a signal did so.
class Cancelled : public Error {
 public:
  using Error::Error;
};

/// Joins its arguments into one message, e.g. `text(path, ": truncated")`.
template <typename... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

}  // namespace millstream
