#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "millstream/core/error.h"
#include "millstream/workers/shared_memory.h"

namespace millstream {

/// What stands on the wire between a crew and a worker: a header and so many bytes.
enum class Kind : std::uint32_t {
  kSetup = 1,  // to the worker: where it notes its row, then what the crew was given
  kTask,       // to the worker: a `Task`
  kReady,      // from it, after the setup
  kDone,       // from it, after a task: what travels beside the rows
  kFailed,     // from it: a `Failure`
};

struct Header {
  Kind kind = Kind::kReady;
  std::uint32_t reserved = 0;
  std::int64_t bytes = 0;
};

/// Rows to make, and where.
struct Task {
  /// A column of the rows: the first of them, and how far they are apart.
  struct Rows {
    Place place;
    std::int64_t stride = 0;
  };
  std::vector<std::int64_t> indices;
  std::vector<std::uint64_t> seeds;
  std::vector<Rows> input;
  std::vector<Rows> output;
};

/// A row that could not be made (-1 for the setup), in words and as the worker puts it.
struct Failure {
  std::int64_t row = -1;
  std::string message;
  std::string bytes;
  bool transient = false;  // another try may succeed
};

/// Appends values and vectors of plain values.
class Writer {
 public:
  explicit Writer(std::string& to) : to_(to) {}

  template <typename T>
  void value(const T& value) {
    static_assert(std::has_unique_object_representations_v<T>);
    to_.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  template <typename T>
  void values(std::span<const T> values) {
    value(static_cast<std::int64_t>(values.size()));
    to_.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  }

 private:
  std::string& to_;
};

/// Reads them back; throws `DataError` where there is less than there should be.
class Reader {
 public:
  explicit Reader(std::string_view from) : from_(from) {}

  template <typename T>
  T value() {
    static_assert(std::is_trivially_copyable_v<T>);
    T result;
    std::memcpy(&result, bytes(sizeof(T)).data(), sizeof(T));
    return result;
  }
  template <typename T>
  std::vector<T> values() {
    const auto count = value<std::int64_t>();
    if (count < 0 || static_cast<std::size_t>(count) > from_.size() / sizeof(T)) {
      throw DataError("a worker's message is cut off");
    }
    const std::string_view raw = bytes(static_cast<std::size_t>(count) * sizeof(T));
    std::vector<T> result(static_cast<std::size_t>(count));
    if (count > 0) std::memcpy(result.data(), raw.data(), raw.size());
    return result;
  }
  std::string_view rest() const noexcept { return from_; }

 private:
  std::string_view bytes(std::size_t count) {
    if (count > from_.size()) throw DataError("a worker's message is cut off");
    const std::string_view result = from_.substr(0, count);
    from_.remove_prefix(count);
    return result;
  }
  std::string_view from_;
};

/// A message with its header.
std::string framed(Kind kind, std::string_view body);

std::string encoded(const Task& task);
Task decoded_task(std::string_view body);
std::string encoded(const Failure& failure);
Failure decoded_failure(std::string_view body);

/// The header at the front of `bytes`; throws `DataError` where it cannot be one.
Header header_of(std::string_view bytes);

/// Blocking; false when the other side has gone. `receive` throws on other errors.
bool send_all(int socket, std::string_view bytes) noexcept;
bool receive(int socket, Kind& kind, std::string& body);

}  // namespace millstream
