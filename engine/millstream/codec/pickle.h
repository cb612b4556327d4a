#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "millstream/io/byte_reader.h"

namespace millstream {

/// One value of a pickle. What a pickle would import or call is only written down.
struct PickleValue {
  enum class Kind : std::uint8_t {
    kNone,
    kInteger,  // booleans too
    kBytes,    // and text, which Python 2 did not tell apart
    kList,
    kTuple,
    kDict,    // `items` are keys and values by turns
    kGlobal,  // `items` are its module and its name
    kCall,    // `items` are the function, its arguments and, if any, the state set then
  };
  Kind kind = Kind::kNone;
  std::int64_t integer = 0;
  std::string_view bytes;            // where the pickle lies
  bool is_latin1 = false;            // `bytes` are text, a character for each byte
  std::int64_t offset = 0;           // of `bytes` in the file
  std::vector<std::uint32_t> items;  // other values of the same pickle
};

/// The bytes that text of that many characters at most 255 stands for: Python 3 writes
/// bytes so with protocol 2. `value` is one of `reader`'s. Throws `DataError` for
/// others.
std::vector<std::byte> latin1_bytes(const PickleValue& value, const ByteReader& reader);

/// The values of a pickle, read without running any of it: there is no instruction in
/// here that could. Borrows the bytes that it was read from.
class Pickle {
 public:
  /// Throws `DataError` for damage and for instructions that arrays of numbers, lists
  /// and dicts do not need.
  explicit Pickle(ByteReader& reader);

  const PickleValue& root() const { return values_[root_]; }
  const PickleValue& operator[](std::uint32_t value) const { return values_[value]; }

  /// The value of a dict at a key of that text, or null.
  const PickleValue* find(const PickleValue& dict, std::string_view key) const;

 private:
  friend class PickleMachine;

  std::vector<PickleValue> values_;
  std::uint32_t root_ = 0;
};

}  // namespace millstream
