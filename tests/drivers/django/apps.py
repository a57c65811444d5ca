"""Django's own applications, keyed by ObjectId, as the backend's manual has them."""

from django.contrib.auth.apps import AuthConfig
from django.contrib.contenttypes.apps import ContentTypesConfig

KEY = "django_mongodb_backend.fields.ObjectIdAutoField"


class Auth(AuthConfig):
    default_auto_field = KEY


class ContentTypes(ContentTypesConfig):
    default_auto_field = KEY
